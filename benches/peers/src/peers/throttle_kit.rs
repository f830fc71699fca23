//! throttle-kit: in memory, by text.

use std::sync::Arc;

use throttle_kit::{InMemoryBackend, Quota, RateLimiter};

use super::{Allowance, at_once};

/// It counts whole milliseconds, and takes less than one as one.
pub(super) fn quota(allowance: Allowance) -> Quota {
    Quota::from_parts(allowance.interval(), allowance.burst)
}

pub fn throttle_kit(allowance: Allowance) -> impl FnMut(&String) -> bool + Clone + Send {
    let limiter = Arc::new(RateLimiter::new(quota(allowance), InMemoryBackend::new()));
    move |key| at_once(limiter.check(key)).allowed
}
