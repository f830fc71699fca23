//! Tollgate: the call that a user writes, polled where it stands.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::backend::Memory;
use tollgate::{Limit, Quota, RateLimiter};

use super::Allowance;
use crate::keys::Name;

/// A limiter with room for twice these keys, so that none has to make room for another: the default
/// up to half a million.
pub fn limiter(keys: usize) -> RateLimiter {
    RateLimiter::new(Memory::new().max_keys(Memory::MAX_KEYS.max(2 * keys)))
}

/// A limit that lives as long as the program, as in a `static`.
pub fn limit(allowance: Allowance) -> &'static Limit {
    named("limit", quota(allowance))
}

fn named(name: &'static str, quota: Quota) -> &'static Limit {
    Box::leak(Box::new(Limit::new(name, quota)))
}

fn quota(allowance: Allowance) -> Quota {
    let Allowance { rate, period, burst } = allowance;
    Quota::token_bucket(rate.into(), period).capacity(burst.into())
}

pub fn ours<K: Name>(
    allowance: Allowance,
    keys: usize,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    asking(limiter(keys), limit(allowance))
}

/// With a bound, however many come.
pub fn ours_bounded<K: Name>(
    allowance: Allowance,
    bound: usize,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    asking(RateLimiter::new(Memory::new().max_keys(bound)), limit(allowance))
}

/// A limit that is split into so many buckets, of which a decision looks at two.
pub fn ours_in_shards<K: Name>(
    allowance: Allowance,
    shards: u32,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    asking(limiter(0), named("limit", quota(allowance).shards(shards)))
}

/// So many limits in one step, each of them for the same key.
///
/// # Panics
///
/// If there is to be none, or more than eight.
pub fn ours_on_all<K: Name>(allowance: Allowance, limits: usize) -> impl FnMut(&K) -> bool {
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    let limits: Vec<_> = names[..limits].iter().map(|name| named(name, quota(allowance))).collect();
    let limiter = limiter(0);
    move |key| {
        let (first, others) = limits.split_first().expect("one limit at least");
        let call = limiter.limit(first).key(key.key());
        let call = others.iter().fold(call, |call, limit| call.and(limit).key(key.key()));
        at_once(call).is_ok()
    }
}

fn asking<K: Name>(
    limiter: RateLimiter,
    limit: &'static Limit,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    move |key| at_once(limiter.limit(limit).key(key.key())).is_ok()
}

/// What a future says at its first poll. In an `async fn` the poll is the same; a runtime around
/// it would add the same cost to all peers.
#[inline(always)]
pub fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("everything is in memory"),
    }
}
