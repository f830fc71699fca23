//! `Retry-After` (RFC 9110, section 10.2.3), written.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

use super::number;
use crate::clock::Timestamp;

/// The form of `Retry-After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetryAfter {
    /// Whole seconds from now, rounded up, at least 1.
    #[default]
    Seconds,
    /// A date, such as `Tue, 14 Nov 2023 22:15:24 GMT`, rounded up to the second.
    Date,
}

impl RetryAfter {
    /// The value for a wait that begins at `now`, or now by the system clock.
    pub(super) fn value(self, wait: Duration, now: Option<Timestamp>) -> Option<HeaderValue> {
        match self {
            Self::Seconds => Some(number::value(ceil_seconds(wait))),
            Self::Date => format_date(ceil_epoch_seconds(now.unwrap_or_else(system_time), wait)),
        }
    }
}

fn system_time() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// Rounds up to whole seconds, at least 1, so that a client which waits for that long is not
/// refused again.
#[inline]
pub(super) const fn ceil_seconds(wait: Duration) -> u64 {
    let up = if wait.subsec_nanos() > 0 { 1 } else { 0 };
    match wait.as_secs().saturating_add(up) {
        0 => 1,
        seconds => seconds,
    }
}

/// The end of a wait that begins at `now`, in seconds since the Unix epoch, rounded up.
pub(super) fn ceil_epoch_seconds(now: Timestamp, wait: Duration) -> u64 {
    let wait = i128::try_from(wait.as_nanos().div_ceil(1_000)).unwrap_or(i128::MAX);
    let end = i128::from(now.as_micros()).saturating_add(wait);
    let micros = u128::try_from(end).unwrap_or(0);
    u64::try_from(micros.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn format_date(epoch: u64) -> Option<HeaderValue> {
    // The year of an HTTP date has four digits.
    let end = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(epoch.min(END_OF_9999)))?;
    HeaderValue::try_from(httpdate::fmt_http_date(end)).ok()
}

/// Friday, 31 December 9999, 23:59:59.
const END_OF_9999: u64 = 253_402_300_799;
