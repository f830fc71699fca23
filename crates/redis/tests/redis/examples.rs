//! The examples do what they say.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/redis_bucket.rs"]
mod redis_bucket;

use redis_bucket::Stored;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, RateLimiter};
use tollgate_redis::{HashTag, Redis};
use tollgate_testing::redis::Server;

const SECOND: f64 = 1e6;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[tokio::test]
async fn redis_bucket_shows_what_it_has_taken() {
    let server = Server::start();
    let shown = redis_bucket::run(&words(&[&server.url()])).await.unwrap();
    assert!(shown.starts_with("tollgate:example:ip=192.0.2.1\n  tokens    17"), "{shown}");
    // From here on, what comes in is seen: it is not stored before the next charge.
    let stored = |shown: &str| shown.lines().last().map(str::to_owned).unwrap();
    let numbers = ", gain 1, token 180000000, capacity 3600000000, step 1";
    assert!(stored(&shown).ends_with(numbers), "{shown}");
    let again = redis_bucket::run(&words(&[&server.url(), "example"])).await.unwrap();
    assert_eq!(stored(&again), stored(&shown), "nothing is taken to look at it");
}

#[tokio::test]
async fn redis_bucket_finds_the_buckets_of_a_limit_and_no_others() {
    let server = Server::start();
    let daily = |name| Limit::try_new(name, Quota::token_bucket(20, DAY)).unwrap();
    let (limit, odd, other) = (daily("a"), daily("a b"), daily("aa"));
    let shards = Limit::new("a", Quota::fixed_window(30, DAY).shards(3));
    let network = std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96);
    for tag in [HashTag::Bucket, HashTag::FirstPart, HashTag::Fixed("t".into())] {
        // The key that all callers share has no first part, and so the same names as without a tag.
        let alike = tag == HashTag::FirstPart;
        let redis = Redis::at(server.url()).prefix("x:y").hash_tag(tag).deadline(HOUR);
        let limiter = RateLimiter::new(redis.connect().await.unwrap());
        for limit in [&limit, &odd, &other] {
            limiter.limit(limit).key(("u", network)).await.unwrap();
            limiter.limit(limit).key("a").await.unwrap();
        }
        // Of three shards of 10, two have to pay.
        assert!(alike || limiter.limit(&shards).cost(15).await.is_ok());
    }
    let find = async |limit: &str, key: Option<&str>| {
        let mut connection = redis_bucket::connect(&server.url()).await.unwrap();
        let found = redis_bucket::buckets(&mut connection, limit, key).await.unwrap().0;
        found.into_iter().map(|bucket| bucket.name).collect::<Vec<_>>()
    };
    let network = "u|ip=2001:db8::/128";
    let [bucket, first_part, fixed] = ["x:y:", "x:y:{u}:", "x:y:{t}:"];
    let of =
        |limit: &str| [bucket, fixed, first_part].map(|head| format!("{head}{limit}:{network}"));
    assert_eq!(find("a", Some(network)).await, of("a"));
    assert_eq!(find("a b", Some(network)).await, of("a%20b"));
    assert_eq!(find("aa", Some(network)).await, of("aa"));
    assert_eq!(find("a", Some("a")).await.len(), 3);
    assert_eq!(find("a", Some("*")).await.len(), 4);
    assert_eq!(find("a", None).await.len(), 10);
    assert_eq!(find("b", None).await, Vec::<String>::new());
    let none = redis_bucket::run(&words(&[&server.url(), "b"])).await.unwrap();
    assert_eq!(none, "nothing is stored: an absent bucket is a full one\n");
}

#[tokio::test]
async fn redis_bucket_says_in_one_line_that_there_is_no_server() {
    let server = Server::start();
    server.kill();
    let error = redis_bucket::run(&words(&[&server.url()])).await.unwrap_err().to_string();
    let address = format!("no Redis at 127.0.0.1:{}: ", server.port());
    let way_out = "(start one with `redis-server`, or say where one is by REDIS_URL)";
    assert!(error.starts_with(&address) && error.ends_with(way_out), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn redis_bucket_describes_a_bucket() {
    let numbers = Quota::token_bucket(10, MINUTE).capacity(20);
    assert_eq!(numbers.to_string(), "10 per minute, capacity 20");
    let bucket = Stored {
        name: "tollgate:per-client:ip=192.0.2.1".to_owned(),
        value: 102e6,
        ts: 1_700_000_000.5 * SECOND,
        gain: 1.0,
        token: 6e6,
        capacity: 120e6,
        step: 1.0,
    };
    let after = |seconds: f64| bucket.describe(bucket.ts + seconds * SECOND);
    assert_eq!(
        after(3.0),
        "tollgate:per-client:ip=192.0.2.1\n  \
         tokens    17.5 of 20, full again in 15s\n  \
         value     17 at 2023-11-14T22:13:20.500000Z (3s ago)\n  \
         limit     gains 1 every 6s, holds 20\n  \
         in units  value 102000000, gain 1, token 6000000, capacity 120000000, step 1\n"
    );
    assert!(after(18.0).contains("tokens    20 of 20, full again\n"));
    assert!(after(-2.0).contains("(2s from now: closed until then)"));
    let window =
        Stored { value: -3.0, gain: 10.0, token: 1.0, capacity: 10.0, step: 60e6, ..bucket };
    let shown = window.describe(window.ts + 59.999 * SECOND);
    assert!(shown.contains("tokens    -3 of 10, full again in 1m 1s\n"), "{shown}");
    assert!(shown.contains("gains 10 every 1m, holds 10\n"), "{shown}");
}
