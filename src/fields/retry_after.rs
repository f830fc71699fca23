//! `Retry-After` (RFC 9110, section 10.2.3), written and read.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::number;
use crate::clock::Timestamp;

/// The form of `Retry-After` (RFC 9110, section 10.2.3): seconds or a date.
///
/// # Examples
///
/// ```
/// use tollgate::fields::RetryAfter;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
///
/// let layer = RateLimiter::in_memory().layer(&API).retry_after(RetryAfter::Date);
/// # drop(layer);
/// ```
#[doc(alias("retry-after", "Retry-After"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryAfter {
    /// Whole seconds from now, rounded up, at least 1. All clients can read it.
    #[default]
    Seconds,
    /// A date, such as `Tue, 14 Nov 2023 22:15:24 GMT`, rounded up to the second.
    ///
    /// Use it for clients that compare it with the `Date` of the response, or that have the right
    /// time. The date is computed from the clock of the store, which has to show the time of day.
    Date,
}

impl RetryAfter {
    /// The value for a wait that begins at `now`.
    pub(super) fn value(self, wait: Duration, now: Timestamp) -> Option<HeaderValue> {
        match self {
            Self::Seconds => Some(number::value(ceil_seconds(wait))),
            Self::Date => format_date(ceil_epoch_seconds(now, wait)),
        }
    }

    /// The value for a second from now, by the system clock: for responses without an answer of the
    /// store, and so without its time.
    pub(super) fn in_a_second(self) -> Option<HeaderValue> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        self.value(Duration::from_secs(1), Timestamp::from_micros(micros))
    }
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

/// Reads the wait from `Retry-After`; `None` if the field is absent or malformed.
#[cfg_attr(not(feature = "retry"), expect(dead_code, reason = "only the retry layer reads it"))]
pub(crate) fn read_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = single_value(headers, &RETRY_AFTER)?;
    if let Some(seconds) = parse_seconds(text) {
        return Some(Duration::from_secs(seconds));
    }
    let until = parse_date(text)?;
    // The server computed both dates by one clock, so their difference is right even if that clock
    // or the local one is wrong. `Date` is rounded down, so the wait is not too short.
    let from = single_value(headers, &DATE).and_then(parse_date).unwrap_or_else(SystemTime::now);
    Some(until.duration_since(from).unwrap_or_default())
}

/// Parses digits only: no sign and no fraction. A number that does not fit is the longest wait.
fn parse_seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Parses a date in any of the three forms of HTTP (RFC 9110, section 5.6.7).
fn parse_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// The value of a field that occurs once. If it occurs twice, neither line can be trusted.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.trim_matches([' ', '\t']))
}
