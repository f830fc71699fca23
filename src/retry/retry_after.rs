//! `Retry-After` (RFC 9110, section 10.2.3), read.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName};

/// The wait that a response asks for; `None` if it asks for none that can be understood.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = single(headers, &RETRY_AFTER)?;
    if let Some(seconds) = seconds(text) {
        return Some(Duration::from_secs(seconds));
    }
    let until = date(text)?;
    // The server's dates differ by what it means, however wrong its clock or ours. Its `Date` is
    // rounded down, so the wait is not too short.
    let from = single(headers, &DATE).and_then(date).unwrap_or_else(SystemTime::now);
    Some(until.duration_since(from).unwrap_or_default())
}

/// Digits and nothing else: no sign, no fraction. More than fits is as long as can be told.
fn seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A date in any of HTTP's three forms (RFC 9110, section 5.6.7).
fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// The value of a field that is there once. Which of two to believe, nobody could say.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.trim_matches([' ', '\t']))
}
