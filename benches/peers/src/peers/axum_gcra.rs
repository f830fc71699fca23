//! axum_gcra's limiter, below its layer.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use axum_gcra::gcra::{Quota, RateLimiter};

use super::Allowance;
use crate::keys::Name;

pub(super) fn quota(allowance: Allowance) -> Quota {
    let burst = NonZeroU64::new(allowance.burst.into()).expect("a burst above zero");
    Quota::new(allowance.interval(), burst)
}

pub fn axum_gcra<K: Name>(allowance: Allowance) -> impl FnMut(&K) -> bool + Clone + Send + use<K> {
    // It looks for what may be forgotten at every 8,192nd new key.
    let limiter = Arc::new(RateLimiter::<K>::default());
    let quota = quota(allowance);
    // It takes the key by value.
    move |key| limiter.req_sync(key.clone(), quota, Instant::now()).is_ok()
}
