//! `Retry-After` (RFC 9110, section 10.2.3), written.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

use super::number;
use crate::clock::Timestamp;

/// How `Retry-After` says when to come back (RFC 9110, section 10.2.3).
///
/// # Examples
///
/// ```
/// use tollgate::fields::RetryAfter;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
///
/// let layer = RateLimiter::in_memory().layer(API).retry_after(RetryAfter::Date);
/// # drop(layer);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryAfter {
    /// In so many seconds: a whole number, rounded up, and at least 1. All clients read it.
    #[default]
    Seconds,
    /// At a date, such as `Tue, 14 Nov 2023 22:15:24 GMT`, rounded up to the second.
    ///
    /// It is right for clients that compare it with the response's `Date` or whose clock is right. The
    /// date is by the clock of the store, so that has to tell the time of the day.
    Date,
}

impl RetryAfter {
    /// The value for a wait that begins at `now`.
    pub(crate) fn value(self, wait: Duration, now: Timestamp) -> Option<HeaderValue> {
        match self {
            Self::Seconds => Some(number::value(seconds_up(wait))),
            Self::Date => date(epoch_up(now, wait)),
        }
    }

    /// A second from now, where no store has told the time.
    pub(super) fn soon(self) -> Option<HeaderValue> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        self.value(Duration::from_secs(1), Timestamp::from_micros(micros))
    }
}

/// Whole seconds, up and never zero: a client that comes back then is not refused again.
#[inline]
pub(crate) const fn seconds_up(wait: Duration) -> u64 {
    let up = if wait.subsec_nanos() > 0 { 1 } else { 0 };
    match wait.as_secs().saturating_add(up) {
        0 => 1,
        seconds => seconds,
    }
}

/// The whole second since the Unix epoch, up, at which a wait is over that begins at `now`.
pub(super) fn epoch_up(now: Timestamp, wait: Duration) -> u64 {
    let wait = i128::try_from(wait.as_nanos().div_ceil(1_000)).unwrap_or(i128::MAX);
    let end = i128::from(now.as_micros()).saturating_add(wait);
    let micros = u128::try_from(end).unwrap_or(0);
    u64::try_from(micros.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn date(epoch: u64) -> Option<HeaderValue> {
    // A date of HTTP has four digits for the year.
    let end = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(epoch.min(END_OF_9999)))?;
    HeaderValue::try_from(httpdate::fmt_http_date(end)).ok()
}

/// Friday, 31 December 9999, 23:59:59.
const END_OF_9999: u64 = 253_402_300_799;
