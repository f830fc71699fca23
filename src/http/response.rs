//! The answers to requests that do not run.

use std::time::Duration;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;

use super::problem;
use crate::limiter::{Error, Limit};

/// Whole seconds, up and never zero: a client that comes back then is not refused again.
pub(crate) const fn seconds_up(wait: Duration) -> u64 {
    let up = if wait.subsec_nanos() > 0 { 1 } else { 0 };
    match wait.as_secs().saturating_add(up) {
        0 => 1,
        seconds => seconds,
    }
}

/// What is told of the limits that have refused, with this status.
pub(crate) fn quota_exceeded<'a>(
    status: StatusCode,
    violated: impl Iterator<Item = &'a str>,
) -> Bytes {
    problem::quota_exceeded(status.as_u16(), violated, None).into()
}

/// 429, or another status, with the time to come back.
pub(crate) fn refusal(status: StatusCode, body: Bytes, retry_after: Duration) -> Response<Bytes> {
    let mut response = respond(status, body);
    let seconds = seconds_up(retry_after);
    // Of digits, a value can always be made.
    if let Ok(seconds) = HeaderValue::from_str(itoa::Buffer::new().format(seconds)) {
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// 429 without such a time, as none would help.
pub(crate) fn too_large(error: &Error) -> Response<Bytes> {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let name = [error.limit().name()].into_iter();
    let detail = "the request costs more than the limit can ever grant";
    respond(status, problem::quota_exceeded(status.as_u16(), name, Some(detail)))
}

/// Some other status, without details: what went wrong is in the log.
pub(crate) fn failure(status: StatusCode) -> Response<Bytes> {
    let title = status.canonical_reason().unwrap_or("Error");
    let mut response = respond(status, problem::plain(status.as_u16(), title));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
    }
    response
}

/// The metric of `Server-Timing` (W3C) for a request that waited for its turn, in milliseconds.
pub(crate) fn waited(limit: &Limit, waited: Duration) -> Option<HeaderValue> {
    let micros = waited.as_micros();
    let (whole, part) = (micros / 1_000, micros % 1_000);
    let name = limit.name().replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::try_from(format!("queue;dur={whole}.{part:03};desc=\"{name}\"")).ok()
}

pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
