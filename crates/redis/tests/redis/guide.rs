//! The commands that `docs/redis.md` gives to operators do what it says.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter};
use tollgate_redis::{ColdStart, Redis};
use tollgate_testing::redis::{Reply, Server};

static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(20, DAY));
static PER_TENANT: Limit = Limit::new("per-tenant", Quota::fixed_window(20, DAY).max_reserved(5));

/// The bucket that the guide has for an example.
const NAME: &str = "tollgate:per-client:ip=192.0.2.1";
const CLIENT: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 1);

/// The line of the guide that begins like this.
#[track_caller]
fn line(start: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/redis.md");
    let guide = fs::read_to_string(guide).unwrap();
    let mut lines = guide.lines().map(str::trim).filter(|line| line.starts_with(start));
    let line = lines.next().unwrap_or_else(|| panic!("no line begins with {start}"));
    assert_eq!(lines.next(), None, "which one?");
    line.to_owned()
}

/// A line for a shell, about this server.
fn type_in(line: &str, server: &Server) -> String {
    let asked = format!("redis-cli -p {}", server.port());
    let mut shell = Command::new("sh");
    shell.args(["-c", &line.replacen("redis-cli", &asked, 1)]).stdin(Stdio::null());
    let said = shell.output().unwrap();
    assert!(said.status.success(), "{line}: {said:?}");
    String::from_utf8(said.stdout).unwrap()
}

async fn use_all(limiter: &RateLimiter) {
    for _ in 0..3 {
        let _permit = limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap();
    }
    let both = limiter.limit(&PER_CLIENT).key("alice").and(&PER_TENANT).cost(20);
    let _permit = both.await.unwrap();
    let reservation = limiter.limit(&PER_TENANT).reserve().await.unwrap();
    assert!(reservation.wait() > Duration::ZERO);
    drop(reservation);
    limiter.penalize(&PER_CLIENT, 3).key("alice").await.unwrap();
    limiter.reset(&PER_CLIENT).key("alice").await.unwrap();
    assert_eq!(limiter.peek(&PER_CLIENT).key("alice").await.unwrap().remaining(), 20);
}

#[tokio::test]
async fn the_rights_that_are_named_suffice() {
    let server = Server::start();
    let rights = line("ACL SETUSER tollgate");
    server.command(&rights.split(' ').collect::<Vec<_>>()).ok();
    let url = server.url().replace("://", "://tollgate:secret@");
    // With a cold start that begins empty, which needs the most rights.
    server.command(&["SET", "tollgate:#init", "0"]).ok();
    let redis = Redis::at(url).cold_start(ColdStart::Empty).deadline(HOUR).connect().await.unwrap();
    use_all(&RateLimiter::new(redis)).await;
    // Newer servers are told the client's name, which does not need to be allowed.
    for entry in server.command(&["ACL", "LOG"]).list() {
        let mut fields = entry.list().iter();
        let is_object = |field: &&Reply| **field == Reply::Text(b"object".into());
        let object = fields.by_ref().find(is_object).and_then(|_| fields.next()).unwrap().text();
        assert!(object.starts_with("client"), "{object} was refused");
    }
}

#[tokio::test]
async fn every_right_that_is_named_is_needed() {
    // All but the one for a question that may be left unanswered.
    for right in ["+eval", "+evalsha", "+time", "+getrange", "+set", "+setrange", "+del"] {
        let server = Server::start();
        let rights = line("ACL SETUSER tollgate");
        let all: Vec<_> = rights.split(' ').collect();
        let fewer: Vec<_> = all.iter().copied().filter(|word| *word != right).collect();
        assert_eq!(fewer.len() + 1, all.len(), "{right}");
        server.command(&fewer).ok();
        let url = server.url().replace("://", "://tollgate:secret@");
        let limiter = RateLimiter::new(Redis::at(url).deadline(HOUR).connect().await.unwrap());
        let mut is_missed = false;
        // Of 20 a day, one in three of these charges at least leaves the expiry as it is.
        for _ in 0..4 {
            is_missed |= limiter.limit(&PER_CLIENT).key(CLIENT).await.is_err();
        }
        is_missed |= limiter.reset(&PER_CLIENT).key(CLIENT).await.is_err();
        assert!(is_missed, "{right}");
    }
}

#[tokio::test]
async fn the_lines_that_show_a_bucket_show_it() {
    let server = Server::start();
    let limiter = RateLimiter::new(Redis::at(server.url()).deadline(HOUR).connect().await.unwrap());
    for _ in 0..3 {
        let _permit = limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap();
    }
    let first = line(&format!("redis-cli GET {NAME}"));
    let python = first.strip_suffix('\\').unwrap().to_owned() + &line("| python3 -c");
    let numbers = type_in(&python, &server);
    // 20 a day: in lowest terms 1 in 4,320 seconds.
    assert!(numbers.ends_with(", 1.0, 4320000000.0, 86400000000.0, 1.0)\n"), "{numbers}");
    let value: f64 = numbers[1..].split(',').next().unwrap().parse().unwrap();
    assert!((17.0 * 4.32e9..17.1 * 4.32e9).contains(&value), "{numbers}");
    let tokens = type_in(&line("redis-cli EVAL"), &server);
    assert!(tokens.starts_with("17.0") && tokens.ends_with(" of 20.00 tokens\n"), "{tokens}");
}

#[tokio::test]
async fn buckets_begin_full_after_the_command_that_says_nothing_was_lost() {
    let server = Server::start();
    let connect = || Redis::at(server.url()).cold_start(ColdStart::Empty).deadline(HOUR).connect();
    let limiter = RateLimiter::new(connect().await.unwrap());
    assert!(limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap_err().is_refused());
    assert_eq!(type_in(&line("redis-cli SET tollgate:#init"), &server), "OK\n");
    let _permit = limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap();
    server.flush_all();
    assert!(limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap_err().is_refused());
}
