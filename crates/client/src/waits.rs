//! How long a refusal asks to wait.

use std::time::Duration;

use http::HeaderMap;

use super::fields::{Fields, Unread};
use super::reading::Assumed;
use super::{ASSUMED_WAIT, times};

/// The wait that the response names, if it does.
pub(super) fn told(fields: &mut Fields<'_>) -> Option<Duration> {
    let headers = fields.headers;
    let mut unread = None;
    let mut longest = |names: [&str; 2], parse: &dyn Fn(&str) -> Option<Duration>| {
        let waits = names.map(|name| match fields.read(name, Assumed::Wait, parse) {
            Ok(wait) => wait,
            Err(Unread) => {
                let lines = headers.get_all(name).iter();
                let read = lines.filter_map(|line| parse(line.to_str().ok()?)).max();
                unread = unread.max(read).max(Some(ASSUMED_WAIT));
                None
            }
        });
        waits.into_iter().flatten().max()
    };
    longest(MILLIS, &times::millis)
        .or_else(|| longest(SECONDS, &|text| times::retry_after(text, headers)))
        .or(unread)
}

/// Whether the server asks not to send the request again.
pub(super) fn is_final(headers: &HeaderMap) -> bool {
    let says_no = |name| headers.get_all(name).iter().any(|value| value == "false");
    says_no("x-should-retry") || says_no("stripe-should-retry")
}

const MILLIS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];
const SECONDS: [&str; 2] = ["retry-after", "x-ratelimit-retry-after"];
