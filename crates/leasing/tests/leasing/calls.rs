//! Calls on a leased limit: they read as on any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{advance, sleep};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::TokioClock;
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_leasing::Leasing;

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

/// A token of these numbers has a million units, and one of `HOT` has ten.
const ODD: Quota = Quota::token_bucket(99_991, SECOND).max_reserved(0);

/// Takes a little for a while, so that the node has a lot.
async fn warm_up(limiter: &RateLimiter, limit: &Limit) {
    for _ in 0..200 {
        limiter.limit(limit).await.unwrap();
        advance(Duration::from_micros(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_takes_its_tokens_whatever_a_token_has_become() {
    let limiter = limiter().await;
    let permit = limiter.limit(&HOT).cost(10).await.unwrap();
    limiter.replace(&HOT, ODD).unwrap();
    warm_up(&limiter, &HOT).await;
    let before = limiter.peek(&HOT).await.unwrap().remaining();
    permit.settle(20_010).await.unwrap();
    let taken = before - limiter.peek(&HOT).await.unwrap().remaining();
    assert!((20_000..=20_001).contains(&taken), "rounded by less than a token: {taken}");
}

#[tokio::test(start_paused = true)]
async fn a_look_adds_no_lots_of_other_numbers() {
    static LIMIT: Limit = Limit::new("odd", ODD);
    let clock = TokioClock::new();
    let store = Leasing::new(Memory::new().clock(clock)).lease(&LIMIT).clock(clock);
    let limiter = RateLimiter::new(store);
    warm_up(&limiter, &LIMIT).await;
    limiter.penalize(&LIMIT, 20_000).await.unwrap();
    warm_up(&limiter, &LIMIT).await;
    let before = limiter.peek(&LIMIT).await.unwrap().remaining();
    limiter.replace(&LIMIT, *HOT.quota()).unwrap();
    let after = limiter.peek(&LIMIT).await.unwrap().remaining();
    assert!(after <= before + 10, "{before} and {after}");
}

/// A store that answers late while it is told to.
#[derive(Debug)]
struct Late(Memory, Arc<AtomicBool>);

impl Backend for Late {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        match self.0.apply(charges) {
            Answer::Ready(answer) if self.1.load(Ordering::Relaxed) => Answer::pending(async {
                sleep(Duration::from_millis(10)).await;
                answer
            }),
            answer => answer,
        }
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_refusal_by_numbers_of_before_refuses_nothing_by_the_new_ones() {
    static HOURLY: Limit = Limit::new("hourly", Quota::fixed_window(100, HOUR).max_reserved(0));
    let (clock, is_late) = (TokioClock::new(), Arc::new(AtomicBool::new(false)));
    let store = Late(Memory::new().clock(clock), Arc::clone(&is_late));
    let limiter = RateLimiter::new(Leasing::new(store).lease(&HOURLY).clock(clock));
    limiter.limit(&HOURLY).cost(100).await.unwrap();
    is_late.store(true, Ordering::Relaxed);
    let late = async { limiter.limit(&HOURLY).cost(50).await.unwrap_err() };
    let changed = async {
        is_late.store(false, Ordering::Relaxed);
        let more = Quota::fixed_window(1_000, HOUR).max_reserved(0);
        limiter.replace(&HOURLY, more).unwrap();
        limiter.limit(&HOURLY).cost(50).await.unwrap();
    };
    let (refused, ()) = tokio::join!(late, changed);
    assert!(refused.is_refused());
    // More than a lot has.
    limiter.limit(&HOURLY).cost(500).await.unwrap();
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
