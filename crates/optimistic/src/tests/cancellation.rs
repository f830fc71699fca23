//! Futures that are dropped at each of their awaits.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{CasMap, on};
use tollgate::clock::ManualClock;
use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_conformance::history::START;

static FIRST: Limit = Limit::new("first", Quota::token_bucket(10, DAY));
static SECOND: Limit = Limit::new("second", Quota::token_bucket(10, DAY));

/// Polls a future so many times, then drops it. Returns whether it was done by then.
fn poll_times<F: IntoFuture>(call: F, times: usize) -> bool {
    let mut call = pin!(call.into_future());
    (0..times).any(|_| {
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(_))
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_at_any_await_takes_all_or_nothing_and_once() {
    let (mut nothing, mut all) = (0, 0);
    for times in 0.. {
        let (_, store) = on(CasMap::<true> { hesitates: true, ..CasMap::default() });
        let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
        let call = limiter.limit(&FIRST).key("a").cost(3).and(&SECOND).key("a").cost(3);
        let is_done = poll_times(call, times);
        // A call that was admitted before its permit was dropped stays charged.
        let mut left = Vec::new();
        for limit in [&FIRST, &SECOND] {
            left.push(limiter.peek(limit).key("a").await.unwrap().remaining());
        }
        match left.as_slice() {
            [10, 10] => nothing += 1,
            [7, 7] => all += 1,
            other => panic!("after {times} polls, {other:?} are left"),
        }
        if is_done {
            assert_eq!(left, [7, 7]);
            break;
        }
    }
    // It awaits two loads, twice each, and a swap, twice.
    assert!(nothing >= 5 && all >= 2, "{nothing} and {all}");
}

#[tokio::test(start_paused = true)]
async fn a_reset_of_single_swaps_goes_on_if_it_is_dropped() {
    let (map, store) = on(CasMap::<false> { hesitates: true, ..CasMap::default() });
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
    let shards = Limit::new("shards", Quota::token_bucket(100, DAY).shards(10));
    for _ in 0..60 {
        assert!(limiter.limit(&shards).key("a").await.is_ok());
    }
    let stored = || map.state.lock().unwrap().values.len();
    assert!(stored() > 5);
    assert!(!poll_times(limiter.reset(&shards).key("a"), 1));
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stored(), 0);
}
