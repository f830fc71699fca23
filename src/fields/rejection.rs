//! The answers to requests that do not run.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::retry_after::{RetryAfter, seconds_up};
use super::{grpc, problem};
use crate::clock::Timestamp;
use crate::limiter::{Error, Limit};

/// How an answer is worded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    ProblemDetails,
    PlainText,
    Grpc,
}

/// When to come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComeBack {
    pub(crate) after: Duration,
    pub(crate) now: Timestamp,
    pub(crate) told_as: RetryAfter,
}

/// What is told of the limits that have refused, with this status.
pub(crate) fn quota_exceeded<'a>(
    status: StatusCode,
    violated: impl Iterator<Item = &'a str>,
) -> Bytes {
    problem::quota_exceeded(status.as_u16(), violated, None).into()
}

/// 429, or another status, with the time to come back.
pub(crate) fn refusal(
    form: Form,
    status: StatusCode,
    refused: &[&str],
    come_back: ComeBack,
) -> Response<Bytes> {
    let mut response = match form {
        Form::ProblemDetails => {
            respond(status, PROBLEM, quota_exceeded(status, refused.iter().copied()))
        }
        Form::PlainText => {
            let message = message(refused, come_back.after);
            respond(status, PLAIN, format!("{}: {message}\n", title(status)))
        }
        Form::Grpc => {
            let message = message(refused, come_back.after);
            grpc::respond(status, &message, Some(come_back.after))
        }
    };
    put_retry_after(&mut response, come_back);
    response
}

/// Says when to come back, if that is not said already.
pub(crate) fn put_retry_after<B>(response: &mut Response<B>, come_back: ComeBack) {
    let ComeBack { after, now, told_as } = come_back;
    if let Some(value) = told_as.value(after, now) {
        put_if_not_there(response, value);
    }
}

/// 429 without such a time, as none would help.
pub(crate) fn too_large(form: Form, error: &Error) -> Response<Bytes> {
    let (status, name) = (StatusCode::TOO_MANY_REQUESTS, error.limit().name());
    let why = "the request costs more than the limit can ever grant";
    match form {
        Form::ProblemDetails => {
            let names = [name].into_iter();
            respond(status, PROBLEM, problem::quota_exceeded(status.as_u16(), names, Some(why)))
        }
        Form::PlainText => respond(status, PLAIN, format!("{}: {why} (`{name}`)\n", title(status))),
        Form::Grpc => grpc::respond(status, &format!("{why} (`{name}`)"), None),
    }
}

/// Some other status, without details: what went wrong is in the log. 503 says that a second helps.
pub(crate) fn failure(form: Form, status: StatusCode, told_as: RetryAfter) -> Response<Bytes> {
    let soon = status == StatusCode::SERVICE_UNAVAILABLE;
    let mut response = match form {
        Form::ProblemDetails => {
            respond(status, PROBLEM, problem::plain(status.as_u16(), title(status)))
        }
        Form::PlainText => respond(status, PLAIN, format!("{}\n", title(status))),
        Form::Grpc => grpc::respond(status, title(status), soon.then_some(Duration::from_secs(1))),
    };
    if soon {
        put_soon(&mut response, told_as);
    }
    response
}

/// Says to come back in a second, if it is not said when.
pub(crate) fn put_soon<B>(response: &mut Response<B>, told_as: RetryAfter) {
    if let Some(soon) = told_as.soon() {
        put_if_not_there(response, soon);
    }
}

fn put_if_not_there<B>(response: &mut Response<B>, retry_after: HeaderValue) {
    // Only a map with no room for any more says that it cannot take it.
    if let Ok(entry) = response.headers_mut().try_entry(RETRY_AFTER) {
        let _ = entry.or_try_insert(retry_after);
    }
}

/// The metric of `Server-Timing` (W3C) for a request that waited for its turn, in milliseconds.
pub(crate) fn waited(limit: &Limit, waited: Duration) -> Option<HeaderValue> {
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
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn title(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

/// Such as "refused by `a` and `b`, to be tried again in 5 seconds".
fn message(refused: &[&str], after: Duration) -> String {
    let names: Vec<_> = refused.iter().map(|name| format!("`{name}`")).collect();
    let (seconds, names) = (seconds_up(after), names.join(" and "));
    let unit = if seconds == 1 { "second" } else { "seconds" };
    format!("refused by {names}, to be tried again in {seconds} {unit}")
}

pub(super) const PROBLEM: &str = "application/problem+json";
const PLAIN: &str = "text/plain; charset=utf-8";
