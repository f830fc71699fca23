//! Peers with one bucket for all: leaky-bucket and ratelimit.

use std::sync::Arc;

use ratelimit::Ratelimiter;

use super::Allowance;
use crate::keys::Name;

pub fn leaky_bucket<K: Name>(
    allowance: Allowance,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    let Allowance { rate, period, burst } = allowance;
    let limiter = leaky_bucket::RateLimiter::builder()
        .max(burst as usize)
        .initial(burst as usize)
        .refill(rate as usize)
        .interval(period)
        .build();
    let limiter = Arc::new(limiter);
    move |_| limiter.try_acquire(1)
}

pub fn ratelimit<K: Name>(allowance: Allowance) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    let Allowance { rate, period, burst } = allowance;
    let limiter = Ratelimiter::builder(rate.into())
        .period(period)
        .max_tokens(burst.into())
        .initial_available(burst.into())
        .build();
    let limiter = Arc::new(limiter.expect("numbers above zero"));
    move |_| limiter.try_wait().is_ok()
}
