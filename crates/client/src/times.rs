//! Times: seconds, numbers with units, Unix times, dates of HTTP, and instants.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::DATE;
use jiff::{Span, SpanRelativeTo, Timestamp};

use super::FOREVER;

/// The time until a reset, a year at most; of several the longest.
pub(super) fn reset(text: &str, headers: &HeaderMap) -> Option<Duration> {
    longest(text, |one| match seconds(one) {
        Some(number) => match number.as_secs() {
            ..UNIX_SECONDS => Some(number),
            UNIX_SECONDS..UNIX_MILLIS => {
                until(SystemTime::UNIX_EPOCH.checked_add(number)?, headers)
            }
            millis => {
                let since_epoch = Duration::from_millis(millis);
                until(SystemTime::UNIX_EPOCH.checked_add(since_epoch)?, headers)
            }
        },
        None => with_units(one).or_else(|| until(instant(one)?, headers)),
    })
    .map(|reset| reset.min(FOREVER))
}

/// The time of `Retry-After`; of several the longest. Fractions of a second are rounded up.
pub(super) fn retry_after(text: &str, headers: &HeaderMap) -> Option<Duration> {
    let up = |wait: Duration| {
        let whole = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
        Duration::from_secs(whole)
    };
    let number = |one: &str| seconds(one).map(up).or_else(|| with_units(one));
    longest(text, |one| number(one).or_else(|| until(instant(one)?, headers)))
}

/// Milliseconds, with or without a fraction; of several the longest.
pub(super) fn millis(text: &str) -> Option<Duration> {
    longest(text, |one| seconds(one)?.checked_div(1_000))
}

/// The longest of a list. A date of HTTP has a comma itself, so what follows it may belong to it.
fn longest(text: &str, parse: impl Fn(&str) -> Option<Duration>) -> Option<Duration> {
    let mut longest = None;
    let mut parts = text.split(',');
    while let Some(part) = parts.next() {
        let time = parse(part.trim_matches([' ', '\t'])).or_else(|| {
            let date = format!("{},{}", part.trim_start_matches([' ', '\t']), parts.next()?);
            parse(date.trim_end_matches([' ', '\t']))
        })?;
        longest = longest.max(Some(time));
    }
    longest
}

/// The time until an instant. The server computed it by the clock that its `Date` shows, so their
/// difference is right even if that clock or the local one is wrong. `Date` is rounded down, so the
/// time is not too short.
fn until(instant: SystemTime, headers: &HeaderMap) -> Option<Duration> {
    let mut dates = headers.get_all(DATE).iter();
    let date = dates.next().filter(|_| dates.next().is_none());
    let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?.trim()).ok());
    let from = date.unwrap_or_else(SystemTime::now);
    Some(instant.duration_since(from).unwrap_or_default())
}

/// A date in any of the three forms of HTTP, or an instant as in RFC 3339, with any offset.
fn instant(text: &str) -> Option<SystemTime> {
    let date = httpdate::parse_http_date(text).ok();
    date.or_else(|| SystemTime::try_from(text.parse::<Timestamp>().ok()?).ok())
}

/// Numbers with units, one after the other: `6m0s`, `120ms`, `1h2m3.5s`.
fn with_units(text: &str) -> Option<Duration> {
    // A form of ISO 8601 would be a second meaning of `P`, which no server sends.
    let span: Span =
        text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok())??;
    let time = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(time).ok()
}

/// Seconds, with or without a fraction; digits of the fraction behind the ninth do not count. A
/// number that does not fit is the longest time.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let nanos: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some(Duration::new(whole.parse().unwrap_or(u64::MAX), nanos.parse().ok()?))
}

/// As seconds, it is a Unix time in 2001, and no wait.
const UNIX_SECONDS: u64 = 1_000_000_000;
/// As seconds, it is a year beyond 5000, so it is in milliseconds.
const UNIX_MILLIS: u64 = 100_000_000_000;
