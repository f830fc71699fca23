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
    let Allowance { rate, period, burst } = allowance;
    let quota = Quota::token_bucket(rate.into(), period).capacity(burst.into());
    Box::leak(Box::new(Limit::new("limit", quota)))
}

pub fn ours<K: Name>(
    allowance: Allowance,
    keys: usize,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    asking(limiter(keys), limit(allowance))
}

/// With the bound that a store has if none is set, however many come.
pub fn ours_default<K: Name>(
    allowance: Allowance,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    asking(limiter(0), limit(allowance))
}

fn asking<K: Name>(
    limiter: RateLimiter,
    limit: &'static Limit,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    move |key| at_once(limiter.limit(limit).key(key.key())).is_ok()
}

/// What a future says at its first poll. In an `async fn` the poll is the same; a runtime around
/// it would cost everybody the same again.
#[inline(always)]
pub fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("everything is in memory"),
    }
}
