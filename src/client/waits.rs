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
    for name in ["retry-after-ms", "x-ms-retry-after-ms", "retry-after"] {
        let read = fields.read(name, Assumed::Wait, |text| match name {
            "retry-after" => times::retry_after(text, headers),
            _ => times::millis(text),
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
