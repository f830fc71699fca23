//! What a limiter can do, it can do in PostgreSQL.

use std::time::Duration;

use tollgate::{DAY, HOUR, Key, Limit, Quota, RateLimiter};
use tollgate_postgres::{Postgres, PostgresBuilder};
use tollgate_testing::postgres::Server;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

/// A store on the server of these tests, in a schema of its own.
fn on(server: &Server) -> PostgresBuilder {
    Postgres::at(server.settings()).schema(server.unused_name()).deadline(LONG)
}

async fn limiter() -> RateLimiter {
    RateLimiter::new(on(Server::shared()).connect().await.unwrap())
}

static EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(10, DAY).max_reserved(20));
static DAILY: Limit = Limit::new("daily", Quota::fixed_window(3, DAY));

#[tokio::test]
async fn tokens_are_taken_refunded_and_forgotten() {
    let limiter = limiter().await;
    let permit = limiter.limit(&EXPORTS).key("alice").cost(7).await.unwrap();
    assert_eq!(permit.remaining(), 3);
    assert_eq!(permit.settle(2).await.unwrap().remaining(), 8);
    assert!(limiter.limit(&EXPORTS).key("alice").cost(9).await.unwrap_err().is_refused());
    assert_eq!(limiter.peek(&EXPORTS).key("alice").await.unwrap().remaining(), 8);
    assert_eq!(limiter.peek(&EXPORTS).key("bob").await.unwrap().remaining(), 10);
    limiter.reset(&EXPORTS).key("alice").await.unwrap();
    assert_eq!(limiter.peek(&EXPORTS).key("alice").await.unwrap().remaining(), 10);
}

#[tokio::test]
async fn several_limits_are_charged_together_or_not_at_all() {
    let limiter = limiter().await;
    for left in [2, 1, 0] {
        let permit = limiter.limit(&EXPORTS).key("alice").and(&DAILY).key("alice").await.unwrap();
        assert_eq!(permit.snapshots().map(|one| one.remaining()).min(), Some(left));
    }
    let refused = limiter.limit(&EXPORTS).key("alice").and(&DAILY).key("alice").await.unwrap_err();
    assert!(refused.is_refused());
    assert_eq!(limiter.peek(&EXPORTS).key("alice").await.unwrap().remaining(), 7);
}

#[tokio::test]
async fn reservations_wait_their_turn_and_are_undone() {
    let limiter = limiter().await;
    let reserve = async || limiter.limit(&EXPORTS).key("alice").cost(10).reserve().await.unwrap();
    assert!(reserve().await.wait().is_zero());
    // The first was dropped, so its tokens are back.
    while limiter.peek(&EXPORTS).key("alice").await.unwrap().remaining() < 10 {
        tokio::task::yield_now().await;
    }
    let first = reserve().await.keep();
    let waits = reserve().await;
    assert!(waits.wait() > HOUR * 23, "{:?}", waits.wait());
    drop(first);
}

/// Keys from requests: hostile names are different names, and long ones are hashed.
#[tokio::test]
async fn every_key_has_a_bucket_of_its_own() {
    let limiter = limiter().await;
    let long = "x".repeat(65_536);
    let keys = ["", "\0", "a", "a:b", "a%3Ab", "7", "ä", "\u{10ffff}", "'; DROP TABLE", &long];
    let keys = keys.map(Key::from).into_iter().chain([Key::from(7_u64), Key::GLOBAL]);
    for key in keys.clone() {
        for left in [2, 1, 0] {
            let permit = limiter.limit(&DAILY).key(key.clone()).await.unwrap();
            assert_eq!(permit.remaining(), left, "{key}");
        }
    }
    for key in keys {
        assert!(limiter.limit(&DAILY).key(key).await.unwrap_err().is_refused());
    }
}

#[tokio::test]
async fn prefixes_and_secrets_keep_buckets_apart_and_hide_keys() {
    let server = Server::shared();
    let schema = server.unused_name();
    let at = || Postgres::at(server.settings()).schema(&schema).deadline(LONG);
    for builder in [at(), at().prefix("shop"), at().hash_keys([7; 32]), at().prefix("shop:eu")] {
        let limiter = RateLimiter::new(builder.connect().await.unwrap());
        let permit = limiter.limit(&DAILY).key("alice").await.unwrap();
        assert_eq!(permit.remaining(), 2);
    }
    let names = format!("SELECT convert_from(key, 'UTF8') FROM {schema}.buckets ORDER BY 1");
    let names = server.query(&names);
    let [secret, shop, shop_eu, plain] = *names.lines().collect::<Vec<_>>() else {
        panic!("{names}")
    };
    let known = ["shop:daily:alice", "shop:eu:daily:alice", "tollgate:daily:alice"];
    let mut shown = [shop, shop_eu, plain, secret];
    shown.sort_unstable();
    assert!(known.iter().all(|name| shown.contains(name)), "{names}");
    assert!(names.contains("tollgate:daily:hmac="), "{names}");
}

#[tokio::test]
async fn a_connection_of_a_pool_that_the_application_has_is_used() {
    let server = Server::shared();
    let schema = server.unused_name();
    let config: tokio_postgres::Config = server.settings().parse().unwrap();
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(1).build().unwrap();
    let with_pool = |deadline| Postgres::with_pool(pool.clone()).schema(&schema).deadline(deadline);
    let patient = RateLimiter::new(with_pool(LONG).connect().await.unwrap());
    patient.limit(&EXPORTS).key("alice").await.unwrap();
    // While the application holds all connections, decisions fail by their deadline: it waits for
    // that.
    let held = pool.get().await.unwrap();
    let hurried = RateLimiter::new(with_pool(SHORT).connect_lazily().unwrap());
    let late = hurried.limit(&DAILY).key("alice").await.unwrap_err();
    assert!(late.is_timeout(), "{late:?}");
    drop(held);
    patient.limit(&DAILY).key("alice").await.unwrap();
}
