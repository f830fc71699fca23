//! What the tests and benchmarks of tollgate share.
//!
//! `clock`, `postgres`, `redis`, [`cases`], [`dice`], [`draw`] and [`fuzz`] know nothing of the library. The unit tests in
//! its `src` can use these and no others: for them, all types of the library would be there twice.

#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    clippy::must_use_candidate,
    clippy::new_without_default,
    clippy::return_self_not_must_use,
    reason = "these are for crates whose users see a release of them"
)]

pub mod address;
#[cfg(feature = "calendar")]
pub mod ahead;
pub mod attack;
pub mod broken;
#[cfg(feature = "calendar")]
pub mod calendars;
pub mod cases;
#[cfg(unix)]
mod certificates;
#[cfg(unix)]
pub mod clock;
pub mod debtors;
pub mod dice;
pub mod draw;
pub mod fuzz;
pub mod in_flight;
pub mod journal;
pub mod log;
pub mod nodes;
#[cfg(unix)]
pub mod postgres;
pub mod proxies;
pub mod queue;
#[cfg(unix)]
pub mod redis;
pub mod shared;
pub mod threads;
pub mod traffic;
pub mod vectors;
pub mod web;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::limiter::LimitCall;
use tollgate::{Limit, Quota, RateLimiter, Timestamp};

/// The answer of a call that must not wait: the memory store decides at once.
#[track_caller]
pub fn at_once<F: IntoFuture>(call: F) -> F::Output {
    match pin!(call.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store has to answer at once"),
    }
}

/// Asks the store, which answers later, and drops the call.
#[track_caller]
pub fn ask_and_drop<F: Future>(call: F) {
    let asked = pin!(call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(asked.is_pending(), "the store has to answer later");
}

/// Polls a future so many times and then drops it; its output if it was done by then.
pub async fn dropped_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The next poll comes when there is something to do, unless it was the last.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Some time in 2023, nowhere near the start of any window.
pub const START: Timestamp = Timestamp::from_micros(1_700_000_123_456_789);

/// A limiter in memory, on this clock.
pub fn limiter(clock: &ManualClock) -> RateLimiter {
    RateLimiter::new(Memory::new().clock(clock.clone()))
}

/// A store on this clock, and a limiter on the store.
pub fn store(memory: Memory, clock: &ManualClock) -> (Arc<Memory>, RateLimiter) {
    let memory = Arc::new(memory.clock(clock.clone()));
    (Arc::clone(&memory), RateLimiter::new(memory))
}

/// Whether this key gets these tokens.
#[track_caller]
pub fn admitted(limiter: &RateLimiter, limit: &Limit, key: u64, cost: u64) -> bool {
    is_admitted(limiter.limit(limit).key(key).cost(cost))
}

/// Whether the memory store admits a call; anything but a refusal is a mistake of the test.
#[track_caller]
pub fn is_admitted(call: LimitCall<'_>) -> bool {
    match at_once(call) {
        Ok(_permit) => true,
        Err(error) if error.is_refused() => false,
        Err(error) => panic!("a decision is expected, and not {error:?}"),
    }
}

/// The whole tokens that this key has left.
#[track_caller]
pub fn remaining(limiter: &RateLimiter, limit: &Limit, key: u64) -> u64 {
    at_once(limiter.peek(limit).key(key)).unwrap().remaining()
}

/// Rates and periods from 1 in 30 days to 1,000,000 a second, in many odd ratios.
fn rates() -> impl Strategy<Value = (u64, Duration)> {
    let periods = prop_oneof![
        Just(1_u64),
        Just(1_000_000),
        Just(60_000_000),
        Just(86_400_000_000),
        Just(2_592_000_000_000),
        1_u64..=1_000,
        1_u64..=2_592_000_000_000,
    ];
    let rates = prop_oneof![1_u64..=10, 1_u64..=1_000, 1_u64..=1_000_000];
    (rates, periods).prop_map(|(rate, period)| {
        // At most one token a microsecond, which is 1,000,000 a second.
        (rate.min(period), Duration::from_micros(period))
    })
}

/// Quotas of both kinds that fit, with capacities from zero.
pub fn quotas() -> impl Strategy<Value = Quota> {
    let capacity = prop_oneof![Just(None), Just(Some(0)), (0_u64..=30).prop_map(Some)];
    let start = prop_oneof![Just(None), (-5_000_000_i64..5_000_000).prop_map(Some)];
    let parts = (any::<bool>(), rates(), capacity, start);
    parts.prop_filter_map("fits 2^53 units", |(bucket, (rate, period), capacity, start)| {
        let mut quota = if bucket {
            Quota::token_bucket(rate, period)
        } else {
            let quota = Quota::fixed_window(rate, period);
            start.map_or(quota, |start| quota.start(Timestamp::from_micros(start)))
        };
        if let Some(capacity) = capacity {
            quota = quota.capacity(capacity);
        }
        quota.validated().ok()
    })
}
