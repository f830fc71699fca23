//! governor: keyed by default, with its fastest hasher, and direct.

use std::num::NonZeroU32;
use std::sync::Arc;

use governor::clock::DefaultClock;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::Allowance;
use crate::keys::Name;

pub(super) fn quota(allowance: Allowance) -> Quota {
    let burst = NonZeroU32::new(allowance.burst).expect("a burst above zero");
    Quota::with_period(allowance.interval()).expect("an interval above zero").allow_burst(burst)
}

/// Its store, for the works that sweep it.
pub type GovernorStore<K> = Arc<DefaultKeyedRateLimiter<K>>;

pub fn governor_store<K: Name>(allowance: Allowance) -> GovernorStore<K> {
    Arc::new(RateLimiter::keyed(quota(allowance)))
}

pub fn governor<K: Name>(allowance: Allowance) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    let limiter = governor_store(allowance);
    move |key| limiter.check_key(key).is_ok()
}

pub fn governor_foldhash<K: Name>(
    allowance: Allowance,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    let limiter = Arc::new(RateLimiter::dashmap_with_clock_and_hasher(
        quota(allowance),
        DefaultClock::default(),
        foldhash::fast::RandomState::default(),
    ));
    move |key| limiter.check_key(key).is_ok()
}

/// One bucket for all keys.
pub fn governor_direct<K: Name>(
    allowance: Allowance,
) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    let limiter = Arc::new(RateLimiter::direct(quota(allowance)));
    move |_| limiter.check().is_ok()
}
