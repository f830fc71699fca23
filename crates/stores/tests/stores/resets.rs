//! A reset through a limiter on Redis forgives what was taken through it.

use tollgate::limiter::Permit;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;

static FIVE: Limit = Limit::new("five", Quota::token_bucket(5, HOUR));
static LLM: Limit = Limit::new("llm", Quota::token_bucket(1_000, HOUR));

async fn limiter(server: &Server) -> RateLimiter {
    let redis = Redis::at(server.url()).deadline(MINUTE);
    RateLimiter::new(redis.connect().await.unwrap())
}

async fn five(limiter: &RateLimiter) -> Vec<Permit<'_>> {
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(limiter.limit(&FIVE).key("alice").await.unwrap());
    }
    permits
}

async fn left(limiter: &RateLimiter) -> u64 {
    limiter.peek(&FIVE).key("alice").await.unwrap().remaining()
}

/// In a former version, ten requests ran after the reset, of five an hour.
#[tokio::test]
async fn permits_from_before_a_reset_through_the_same_limiter_give_nothing_back() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let before = five(&limiter).await;
    limiter.reset(&FIVE).key("alice").await.unwrap();
    let after = five(&limiter).await;
    for permit in before {
        permit.refund().await.unwrap();
    }
    assert_eq!(left(&limiter).await, 0);
    for permit in after {
        permit.refund().await.unwrap();
    }
    assert_eq!(left(&limiter).await, 5);
}

/// In a former version, a permit that was held while 1,025 other users logged in gave nothing
/// back.
#[tokio::test]
async fn resets_of_other_keys_do_not_concern_a_permit() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let held = limiter.limit(&LLM).key("alice").cost(1_000).await.unwrap();
    let logins = (0..3_000_u64).map(|user| limiter.reset(&FIVE).key(user).into_future());
    for login in futures_util::future::join_all(logins).await {
        login.unwrap();
    }
    held.settle(10).await.unwrap();
    // It gains by the server's time, while a slow machine resets.
    let left = limiter.peek(&LLM).key("alice").await.unwrap().remaining();
    assert!((990..1_000).contains(&left), "{left}");
}

/// The bound that `reset` documents.
#[tokio::test]
async fn permits_of_other_processes_give_back_what_they_have_taken_and_no_more() {
    let server = Server::start();
    let (here, elsewhere) = (limiter(&server).await, limiter(&server).await);
    let mut before = five(&elsewhere).await;
    here.reset(&FIVE).key("alice").await.unwrap();
    let _after = five(&here).await;
    before.truncate(3);
    for permit in before {
        permit.refund().await.unwrap();
    }
    assert_eq!(left(&here).await, 3);
}
