//! The responses to requests that do not run.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::policy::{FieldNumbers, KeptPolicy};
use super::retry_after::{RetryAfter, ceil_seconds};
use super::{NO_STORE, grpc, number, problem};
use crate::clock::Timestamp;
use crate::limiter::Limit;

/// The format of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wording {
    #[default]
    ProblemDetails,
    PlainText,
    Grpc,
}

/// The time after which to retry, and the form of `Retry-After`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryHint {
    /// `None` if it is unknown, or if no wait helps.
    pub(crate) after: Option<Duration>,
    /// The time of the decision, from which `after` counts; without one, it counts from now.
    pub(crate) now: Option<Timestamp>,
    pub(crate) format: RetryAfter,
}

/// When to retry, if a server cannot say more.
pub(crate) const SOON: Duration = Duration::from_secs(1);

impl RetryHint {
    pub(crate) const SOON: Self =
        Self { after: Some(SOON), now: None, format: RetryAfter::Seconds };
}

/// Makes the response to a refused request: 429, or another status, with `Retry-After` if the time is
/// known.
pub(crate) fn refusal(
    wording: Wording,
    status: StatusCode,
    refused: &[&str],
    hint: RetryHint,
) -> Response<Bytes> {
    let mut response = match wording {
        Wording::ProblemDetails => {
            let names = refused.iter().copied();
            let detail = match hint.after {
                _ if status == StatusCode::SERVICE_UNAVAILABLE => Some(FULL),
                Some(_) => None,
                None => Some(IN_FLIGHT),
            };
            let body = problem::quota_exceeded(status.as_u16(), names, detail);
            respond(status, problem::MEDIA_TYPE, body)
        }
        Wording::PlainText => {
            let message = message(refused, hint.after);
            respond(status, PLAIN_TEXT, format!("{}: {message}\n", title(status)))
        }
        Wording::Grpc => {
            let message = message(refused, hint.after);
            grpc::respond(status, &message, hint.after)
        }
    };
    put_retry_after(&mut response, hint);
    response
}

/// Makes the response to a request that the only limit of a layer has refused: 429 with problem
/// details, and `RateLimit` if there are numbers for it.
pub(crate) fn refusal_by(
    policy: &'static KeptPolicy,
    numbers: Option<FieldNumbers>,
    after: Duration,
) -> Response<&'static Bytes> {
    let mut response = Response::new(&policy.refusal);
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let retry_after = number::value(ceil_seconds(after));
    *response.headers_mut() = policy.fields_of_refusal(numbers, retry_after);
    response
}

/// Adds `Retry-After`, unless the response has it.
pub(crate) fn put_retry_after<B>(response: &mut Response<B>, hint: RetryHint) {
    let RetryHint { after, now, format } = hint;
    if let Some(value) = after.and_then(|after| format.value(after, now)) {
        put_if_absent(response, RETRY_AFTER, value);
    }
}

/// Forbids caches to store the response, unless it has a `Cache-Control`.
pub(crate) fn put_no_store<B>(response: &mut Response<B>) {
    put_if_absent(response, CACHE_CONTROL, NO_STORE);
}

/// Adds to a response to HEAD the length of the body that GET would get (RFC 9110, section 9.3.2),
/// unless the response has it.
pub(crate) fn put_content_length<B>(response: &mut Response<B>, length: Option<u64>) {
    let status = response.status();
    // Responses with these statuses have no body for any method (section 8.6).
    let has_none = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(length) = length.filter(|_| !has_none) {
        put_if_absent(response, CONTENT_LENGTH, number::value(length));
    }
}

/// Adds the `WWW-Authenticate` that asks for credentials, unless the response has one.
pub(crate) fn put_challenge<B>(response: &mut Response<B>, scheme: &'static str) {
    put_if_absent(response, WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
}

/// Makes the response to a request that no wait would help, and says why; without `Retry-After`.
pub(crate) fn refusal_for_good(
    wording: Wording,
    status: StatusCode,
    limit: &Limit,
    why: &'static str,
) -> Response<Bytes> {
    let name = limit.name();
    match wording {
        Wording::ProblemDetails => {
            let names = [name].into_iter();
            let body = problem::quota_exceeded(status.as_u16(), names, Some(why));
            respond(status, problem::MEDIA_TYPE, body)
        }
        Wording::PlainText => {
            respond(status, PLAIN_TEXT, format!("{}: {why} (`{name}`)\n", title(status)))
        }
        Wording::Grpc => grpc::respond(status, &format!("{why} (`{name}`)"), None),
    }
}

/// Makes a response with another status. The log has the reason; `detail` has it where a developer
/// should read it in the response. 503 asks the client to retry after a second.
pub(crate) fn failure(
    wording: Wording,
    status: StatusCode,
    detail: Option<&str>,
    hint: RetryHint,
) -> Response<Bytes> {
    let line = || match detail {
        Some(detail) => format!("{}: {detail}", title(status)),
        None => title(status).to_owned(),
    };
    let after = hint.after.filter(|_| status == StatusCode::SERVICE_UNAVAILABLE);
    let mut response = match wording {
        Wording::ProblemDetails => respond(
            status,
            problem::MEDIA_TYPE,
            problem::untyped(status.as_u16(), title(status), detail),
        ),
        Wording::PlainText => respond(status, PLAIN_TEXT, line() + "\n"),
        Wording::Grpc => grpc::respond(status, &line(), after),
    };
    put_retry_after(&mut response, RetryHint { after, ..hint });
    response
}

/// A response of problem details. 503 asks the client to retry after a second.
#[doc(hidden)]
#[must_use]
pub fn problem_response(status: StatusCode, detail: &str) -> Response<Bytes> {
    failure(Wording::ProblemDetails, status, Some(detail), RetryHint::SOON)
}

fn put_if_absent<B>(response: &mut Response<B>, name: HeaderName, value: HeaderValue) {
    // An error means that the map is full; the field is then omitted.
    if let Ok(entry) = response.headers_mut().try_entry(name) {
        let _ = entry.or_try_insert(value);
    }
}

/// The value of `Server-Timing` (W3C) for the time that a request spent in the queue, in
/// milliseconds.
pub(crate) fn server_timing(limit: &Limit, waited: Duration) -> Option<HeaderValue> {
    let micros = waited.as_micros();
    let (whole, part) = (micros / 1_000, micros % 1_000);
    let name = limit.name().replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::try_from(format!("queue;dur={whole}.{part:03};desc=\"{name}\"")).ok()
}

pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, NO_STORE);
    response
}

fn title(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

/// For example "refused by `a` and `b`, try again in 5 seconds".
fn message(refused: &[&str], after: Option<Duration>) -> String {
    let names: Vec<_> = refused.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(" and ");
    let Some(after) = after else {
        return format!("refused by {names}, {IN_FLIGHT}");
    };
    let seconds = ceil_seconds(after);
    let unit = if seconds == 1 { "second" } else { "seconds" };
    format!("refused by {names}, try again in {seconds} {unit}")
}

/// Why a request is refused that could have waited.
const FULL: &str = "the queue is full";

/// When to come back, if that is known of no instant.
const IN_FLIGHT: &str = "try again when another request has ended";

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
