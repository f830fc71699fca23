//! Refusals as responses, so that handlers can leave by `?`.

use ::http::StatusCode;
use axum::body::Body;
use axum::response::{IntoResponse, Response};

use crate::http::{self, Label, List, Told};
use crate::limiter::{Error, RateLimited, Refusal};

/// 429 with `Retry-After` and problem details, as the layer answers; 503 if nobody could decide.
impl IntoResponse for RateLimited {
    fn into_response(self) -> Response {
        match (self.refusal(), self.error()) {
            (Some(refusal), _) => refused(refusal),
            (None, Some(error)) => failed(error),
            (None, None) => http::failure(StatusCode::SERVICE_UNAVAILABLE).map(Body::from),
        }
    }
}

/// As for [`RateLimited`].
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        failed(&self)
    }
}

fn refused(refusal: &Refusal<'_>) -> Response {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let names = refusal.limits().iter().map(|standing| standing.limit().name());
    let body = http::quota_exceeded(status, names);
    let mut response = http::refusal(status, body, refusal.retry_after());
    let (mut policies, mut members) = (List::default(), List::default());
    for standing in refusal.limits() {
        let label = Label::of(standing.limit());
        label.policy(&mut policies);
        label.member(standing.limit(), standing.stand(), standing.at(), &mut members);
    }
    Told::new(policies.value(), members.value()).tell(response.headers_mut());
    response.map(Body::from)
}

fn failed(error: &Error) -> Response {
    if error.is_too_large() {
        let mut response = http::too_large(error);
        Told::policy(error.limit()).tell(response.headers_mut());
        return response.map(Body::from);
    }
    // The client is told nothing about the store, so the log has to be.
    #[cfg(feature = "tracing")]
    {
        let limit = error.limit().name();
        let error: &(dyn std::error::Error + 'static) = error;
        tracing::error!(limit, error, "no decision");
    }
    http::failure(StatusCode::SERVICE_UNAVAILABLE).map(Body::from)
}
