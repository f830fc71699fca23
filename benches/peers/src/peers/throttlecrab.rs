//! throttlecrab's library, behind a mutex as its documentation says.
//!
//! With the periodic store, as in its example program. Its adaptive store, with more than 100,000
//! keys of which none has expired, looks at all of them again at nearly every decision.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use throttlecrab::{PeriodicStore, RateLimiter};

use super::Allowance;

pub fn throttlecrab(allowance: Allowance) -> impl FnMut(&String) -> bool + Clone + Send {
    let limiter = Arc::new(Mutex::new(RateLimiter::new(PeriodicStore::new())));
    let Allowance { rate, period, burst } = allowance;
    let seconds = i64::try_from(period.as_secs()).expect("a short period");
    move |key| {
        let mut limiter = limiter.lock().expect("nobody panics");
        let now = SystemTime::now();
        let answer = limiter.rate_limit(key, burst.into(), rate.into(), seconds, 1, now);
        answer.is_ok_and(|(allowed, _)| allowed)
    }
}
