//! throttlecrab's library, behind a mutex as its documentation says.
//!
//! With the periodic store, as in its example program. Its adaptive store looks at all keys in every
//! decision while its table is more than three quarters full and nothing has expired, so a million
//! keys cannot be filled in.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use throttlecrab::{PeriodicStore, RateLimiter};

use super::Allowance;

pub fn throttlecrab(allowance: Allowance) -> impl FnMut(&String) -> bool + Clone + Send {
    let limiter = Arc::new(Mutex::new(RateLimiter::new(PeriodicStore::new())));
    let Allowance { rate, period, burst } = allowance;
    let seconds = i64::try_from(period.as_secs()).expect("a short period");
    move |key| {
        let mut limiter = limiter.lock().expect("no thread panics");
        let now = SystemTime::now();
        let answer = limiter.rate_limit(key, burst.into(), rate.into(), seconds, 1, now);
        answer.is_ok_and(|(allowed, _)| allowed)
    }
}
