//! What clients read: `Retry-After` (RFC 9110, section 10.2.3), `Date`, and fields of one value.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{AsHeaderName, DATE, RETRY_AFTER};

/// Reads the wait from `Retry-After`; `None` if the field is absent or malformed.
pub(crate) fn read_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = single_value(headers, RETRY_AFTER)?;
    if let Some(seconds) = parse_seconds(text) {
        return Some(Duration::from_secs(seconds));
    }
    let until = parse_date(text)?;
    // The server computed both dates by one clock, so their difference is right even if that clock
    // or the local one is wrong. `Date` is rounded down, so the wait is not too short.
    let from = read_date(headers).unwrap_or_else(SystemTime::now);
    Some(until.duration_since(from).unwrap_or_default())
}

/// Reads the time of the server from `Date`; `None` if the field is absent or malformed.
pub(crate) fn read_date(headers: &HeaderMap) -> Option<SystemTime> {
    single_value(headers, DATE).and_then(parse_date)
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
pub(crate) fn single_value(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.trim_matches([' ', '\t']))
}
