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
    for name in MILLIS.into_iter().chain(SECONDS) {
        let read = fields.read(name, Assumed::Wait, |text| {
            if MILLIS.contains(&name) {
                times::millis(text)
            } else {
                times::retry_after(text, headers)
            }
        });
        match read {
            Ok(Some(wait)) => return Some(wait),
            Ok(None) => {}
            Err(Unread) => unread = Some(ASSUMED_WAIT),
        }
    }
    unread
}

/// Whether the server asks not to send the request again.
pub(super) fn is_final(headers: &HeaderMap) -> bool {
    let says_no = |name| headers.get(name).is_some_and(|value| value == "false");
    says_no("x-should-retry") || says_no("stripe-should-retry")
}

const MILLIS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];
const SECONDS: [&str; 2] = ["retry-after", "x-ratelimit-retry-after"];
