//! Calls on a leased limit: they read as on any other.

use std::time::Duration;

use tokio::time::advance;
use tollgate::backend::{Leasing, Memory};
use tollgate::clock::TokioClock;
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND};

static HOT: Limit = Limit::new("hot", Quota::token_bucket(100_000, SECOND).max_reserved(0));
static COLD: Limit = Limit::new("cold", Quota::token_bucket(2, HOUR));

/// A limiter that has a lot of the hot limit.
async fn limiter() -> RateLimiter {
    let clock = TokioClock::new();
    let store = Leasing::new(Memory::new().clock(clock)).lease(&HOT).clock(clock);
    let limiter = RateLimiter::new(store);
    for _ in 0..200 {
        limiter.limit(&HOT).await.unwrap();
        advance(Duration::from_micros(200)).await;
    }
    limiter
}

#[tokio::test(start_paused = true)]
async fn what_a_permit_settles_goes_back_to_its_lot() {
    let limiter = limiter().await;
    let permit = limiter.limit(&HOT).cost(10).await.unwrap();
    let before = permit.remaining();
    let settled = permit.settle(3).await.unwrap();
    assert_eq!(settled.remaining(), before + 7);
    let more = limiter.limit(&HOT).cost(1).await.unwrap();
    let before = more.remaining();
    // Work that cost more than was paid takes the rest from the lot as well.
    assert_eq!(more.settle(5).await.unwrap().remaining(), before - 4);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_costs_a_leased_limit_nothing() {
    let limiter = limiter().await;
    let before = limiter.limit(&HOT).await.unwrap().remaining();
    for _ in 0..2 {
        limiter.limit(&HOT).and(&COLD).await.unwrap();
    }
    for _ in 0..3 {
        let refused = limiter.limit(&HOT).and(&COLD).await.unwrap_err();
        assert!(refused.is_refused());
    }
    assert_eq!(limiter.limit(&HOT).await.unwrap().remaining(), before - 3);
}

#[tokio::test(start_paused = true)]
async fn a_leased_limit_does_not_reserve() {
    let limiter = limiter().await;
    let reservation = limiter.limit(&HOT).cost(2).reserve().await.unwrap();
    let permit = reservation.ready().await;
    assert_eq!(permit.snapshot().cost(), 2);
    while limiter.limit(&HOT).cost(500).await.is_ok() {}
    assert!(limiter.limit(&HOT).cost(40_000).reserve().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn penalties_blocks_and_resets_are_felt_at_once_on_the_node_that_makes_them() {
    let limiter = limiter().await;
    limiter.penalize(&HOT, 200_000).await.unwrap();
    assert!(limiter.limit(&HOT).await.unwrap_err().is_refused());
    limiter.reset(&HOT).await.unwrap();
    assert!(limiter.limit(&HOT).await.is_ok());
    limiter.block(&HOT, HOUR).await.unwrap();
    assert!(limiter.limit(&HOT).await.unwrap_err().is_refused());
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_what_the_store_holds_is_an_error_and_no_refusal() {
    let limiter = limiter().await;
    let error = limiter.limit(&HOT).cost(60_000).await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_refused(), "{error}");
}
