//! The list of debtors, by scans of real servers.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use tollgate::backend::{BackendError, DebtorReport};
use tollgate::{DAY, HOUR, Key, Limit, Quota, RateLimited, RateLimiter};
use tollgate_redis::{HashTag, Redis, RedisBuilder};
use tollgate_testing::debtors::{all_are_found_beside_a_hammer, each_is_found_once, list};
use tollgate_testing::redis::{Cluster, Server};

static DAILY: Limit = Limit::new("daily", Quota::token_bucket(10, DAY));
static SHARDS: Limit = Limit::new("shards", Quota::token_bucket(100, DAY).shards(10));

const LONG: Duration = Duration::from_secs(60);

async fn connect(redis: RedisBuilder) -> RateLimiter {
    RateLimiter::new(redis.deadline(LONG).connect().await.unwrap())
}

#[track_caller]
fn cause(error: &RateLimited) -> &BackendError {
    error.source().unwrap().downcast_ref().unwrap()
}

#[tokio::test]
async fn each_debtor_of_many_keys_is_found_once() {
    let server = Server::start();
    each_is_found_once(&connect(Redis::at(server.url())).await).await;
}

#[tokio::test]
async fn each_debtor_is_found_once_on_the_nodes_of_a_cluster() {
    let cluster = Cluster::start(3);
    each_is_found_once(&connect(Redis::cluster(cluster.urls())).await).await;
    let fixed = Redis::cluster(cluster.urls()).hash_tag(HashTag::Fixed("all".into()));
    each_is_found_once(&connect(fixed.prefix("fixed")).await).await;
}

#[tokio::test]
async fn debtors_are_found_while_other_keys_come_and_go() {
    let server = Server::start();
    all_are_found_beside_a_hammer(&connect(Redis::at(server.url())).await).await;
}

#[tokio::test]
async fn keys_are_listed_as_they_are_stored() {
    let server = Server::start();
    let long = "x".repeat(300);
    let keys = [Key::GLOBAL, Key::from("a|b %"), Key::from((7, true)), Key::from(long.as_str())];
    for tag in [HashTag::Bucket, HashTag::FirstPart, HashTag::Fixed("one".into())] {
        let prefix = format!("{tag:?}").to_lowercase().replace(['(', ')', '"'], "-");
        let limiter = connect(Redis::at(server.url()).prefix(prefix).hash_tag(tag)).await;
        for key in &keys {
            limiter.block(&DAILY, HOUR).key(key).await.unwrap();
        }
        let (found, _) = list(&limiter, &DAILY, Some(true), 100).await;
        let found: Vec<_> = found.into_keys().collect();
        assert_eq!(found[..3], ["*", "a%7Cb%20%25", "n=7|bool=true"]);
        assert!(found[3].starts_with("sha256=") && found.len() == 4, "{found:?}");
    }
    let hashed = connect(Redis::at(server.url()).prefix("h").hash_keys(*b"sixteen bytes or")).await;
    hashed.penalize(&DAILY, 30).key("alice").await.unwrap();
    let debtors = hashed.debtors(&DAILY).await.unwrap().into_debtors().unwrap();
    let [debtor] = &*debtors else { panic!("{debtors:?}") };
    let digest = debtor.key_text();
    assert_eq!(debtor.key(), None);
    assert!(digest.starts_with("hmac=") && digest.len() == 37, "{digest}");
    // A token takes hours.
    let tokens: f64 = debtor.tokens().to_string().parse().unwrap();
    assert!((-20.0..-19.0).contains(&tokens), "{tokens}");
    let until = debtor.snapshot().wait().unwrap();
    assert!((DAY * 21 / 10 - HOUR..=DAY * 21 / 10).contains(&until), "{until:?}");
}

#[tokio::test]
async fn each_shard_in_debt_is_listed_by_itself() {
    let server = Server::start();
    let limiter = connect(Redis::at(server.url())).await;
    limiter.block(&SHARDS, HOUR).key("acme").await.unwrap();
    let report = limiter.debtors(&SHARDS).await.unwrap();
    let DebtorReport::Page { at, debtors, .. } = report else { panic!("{report:?}") };
    let mut shards: Vec<_> = debtors.iter().map(|debtor| debtor.shard_index()).collect();
    shards.sort_unstable();
    assert_eq!(shards, (0..10).collect::<Vec<_>>());
    for debtor in debtors {
        assert_eq!(debtor.key(), Some(&Key::from("acme")));
        // A block leaves the bucket one unit short, until it ends.
        assert_eq!(debtor.state().value, -1);
        let until = debtor.snapshot().blocked_until().unwrap();
        assert!(until > at && until <= at + HOUR);
    }
    limiter.reset(&SHARDS).key("acme").await.unwrap();
    let report = limiter.debtors(&SHARDS).await.unwrap();
    let DebtorReport::Page { debtors, next, .. } = report else { panic!("{report:?}") };
    assert_eq!((debtors.len(), next), (0, None));
}

/// A step that is made again reached further than before once names were gone, and names of that part
/// were taken for listed. A server stops a step by the number of names that it has found.
#[tokio::test]
async fn no_debtor_is_missed_where_other_names_go_between_two_pages() {
    let server = Server::start();
    let limiter = connect(Redis::at(server.url())).await;
    for nth in 0..150_u64 {
        limiter.block(&DAILY, HOUR).key(nth).await.unwrap();
        server.command(&["SET", &format!("other:{nth}"), "x"]).ok();
    }
    let (mut found, mut cursor, mut gone) = (BTreeSet::new(), None, 0);
    loop {
        let report = limiter.debtors(&DAILY).max(1).after(cursor).await.unwrap();
        let DebtorReport::Page { debtors, next, .. } = report else { panic!("{report:?}") };
        found.extend(debtors.iter().map(|debtor| debtor.key_text()));
        server.command(&["DEL", &format!("other:{gone}")]);
        gone += 1;
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    let all: BTreeSet<_> = (0..150_u64).map(|nth| format!("n={nth}")).collect();
    assert_eq!(all.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test]
async fn a_value_that_is_no_bucket_is_left_out() {
    let server = Server::start();
    let limiter = connect(Redis::at(server.url())).await;
    limiter.block(&DAILY, HOUR).key("mallory").await.unwrap();
    for command in [
        &["SET", "tollgate:daily:short", "x"][..],
        &["SET", "tollgate:daily:empty", ""],
        &["SET", "tollgate:daily:long", &"x".repeat(49)],
        &["SET", "tollgate:daily:nonsense", &"x".repeat(48)],
        &["LPUSH", "tollgate:daily:list", "x"],
        &["COPY", "tollgate:daily:mallory", "tollgate:daily:x=1"],
        &["COPY", "tollgate:daily:mallory", "tollgate:daily#0:mallory"],
    ] {
        server.command(command);
    }
    let (found, _) = list(&limiter, &DAILY, None, 100).await;
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["mallory"]);
}

#[tokio::test]
async fn a_cursor_that_no_page_has_is_an_error_of_its_own() {
    let server = Server::start();
    let limiter = connect(Redis::at(server.url())).await;
    for cursor in
        ["", "x", "0", "1.0", "0.0.", "0.-1", "0.0.x", "0.18446744073709551616", "99999.0"]
    {
        let error = limiter.debtors(&DAILY).after(cursor.to_owned()).await.unwrap_err();
        assert!(cause(&error).is_unknown_cursor() && !error.is_outage(), "{cursor}: {error:?}");
    }
    // A number of its own means no more than another place to begin.
    let page = limiter.debtors(&DAILY).after("0.77.5".to_owned()).await.unwrap();
    assert!(page.into_debtors().is_some());
}

/// The rights that decisions need suffice for them, and not for a list.
#[tokio::test]
async fn a_user_that_may_not_scan_is_told_so_and_decides_on() {
    let server = Server::start();
    let rights = "ACL SETUSER tollgate on >secret resetkeys ~tollgate:* -@all +ping +eval +evalsha \
                  +time +getrange +set +setrange +del";
    server.command(&rights.split_whitespace().collect::<Vec<_>>()).ok();
    let limiter = connect(Redis::at(server.url().replace("://", "://tollgate:secret@"))).await;
    limiter.block(&DAILY, HOUR).key("mallory").await.unwrap();
    let error = limiter.debtors(&DAILY).await.unwrap_err();
    assert!(cause(&error).is_misconfigured(), "{error:?}");
    assert!(cause(&error).to_string().contains("scan"), "{}", cause(&error));
    limiter.limit(&DAILY).key("alice").await.unwrap();
    server.command(&["ACL", "SETUSER", "tollgate", "+scan"]).ok();
    let (found, _) = list(&limiter, &DAILY, None, 100).await;
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["mallory"]);
}
