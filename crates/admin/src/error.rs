//! Errors, as problem details (RFC 9457).

use std::error::Error;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use tollgate::ParseError;
use tollgate::backend::BackendError;
use tollgate::kit::excerpt;
use tollgate::kit::problem;
use tollgate::limiter::{Limit, RateLimited};

/// A request that is not answered, and why.
#[derive(Debug)]
pub(super) struct AdminError {
    status: StatusCode,
    detail: String,
}

impl AdminError {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn unknown_limit(name: &str, limits: &[Limit]) -> Self {
        let names: Vec<_> =
            limits.iter().take(MAX_NAMES).map(|limit| format!("`{}`", limit.name())).collect();
        let more = match limits.len().checked_sub(MAX_NAMES) {
            None | Some(0) => String::new(),
            Some(more) => format!(" and {more} more"),
        };
        let there = match names.is_empty() {
            true => "none was given to these routes".to_owned(),
            false => format!("there are {}{more}", names.join(", ")),
        };
        let detail = format!("there is no limit `{}` ({there})", excerpt(name));
        Self::new(StatusCode::NOT_FOUND, detail)
    }
}

/// How many names of limits an error has.
const MAX_NAMES: usize = 20;

impl From<ParseError> for AdminError {
    fn from(error: ParseError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<RateLimited> for AdminError {
    fn from(error: RateLimited) -> Self {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<BackendError>());
        let status = match cause {
            Some(cause) if cause.is_unknown_cursor() => StatusCode::BAD_REQUEST,
            // The limit grants nothing, so there is no bucket to change.
            None if error.is_refused() => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let detail = match cause {
            Some(cause) => cause.to_string(),
            None => error.to_string(),
        };
        Self::new(status, detail)
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let Self { status, detail } = self;
        problem(status, &detail).map(Body::from)
    }
}

/// The answer to a path that there is not.
pub(super) async fn not_found() -> AdminError {
    AdminError::new(
        StatusCode::NOT_FOUND,
        "there is nothing at this path (there are `/`, `/{limit}`, `/{limit}/{key}`, \
         `/{limit}/{key}/penalize` and `/{limit}/{key}/block`; in a key, write `/` as `%2F`)",
    )
}

/// The answer to a method that a path does not have.
pub(super) async fn method_not_allowed() -> AdminError {
    AdminError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not have this method (use GET to look, DELETE to reset a key, and POST to \
         `penalize` and `block`)",
    )
}
