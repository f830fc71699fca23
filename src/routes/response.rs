//! Refusals as responses, so that handlers can leave by `?`.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::clock::Timestamp;
use crate::fields::{
    self, Dialects, FieldSet, FieldSetBuilder, Member, PolicyText, RetryAfter, RetryHint, Wording,
};
use crate::limiter::{Error, RateLimited, Refusal, Standing};

/// 429 with `Retry-After` and problem details, as the layer answers; 503 if nobody could decide.
impl IntoResponse for RateLimited {
    fn into_response(self) -> Response {
        match (self.refusal(), self.error()) {
            (Some(refusal), _) => refused(refusal),
            (None, Some(error)) => failed(error),
            (None, None) => unavailable(),
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
    let names: Vec<_> = refusal.limits().iter().map(|standing| standing.limit().name()).collect();
    let now = refusal.limits().first().map_or(Timestamp::UNIX_EPOCH, Standing::at);
    let hint = RetryHint { after: refusal.retry_after(), now, format: RetryAfter::Seconds };
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = fields::refusal(Wording::ProblemDetails, status, &names, hint);
    let mut builder = FieldSetBuilder::new(Dialects::default(), None);
    for standing in refusal.limits() {
        let (limit, stand) = (standing.limit(), standing.stand());
        let policy = &PolicyText::new(limit);
        builder.push(Member { policy, limit, stand, cost: 1, partition_key: None }, standing.at());
    }
    builder.build().write_to(response.headers_mut());
    response.map(Body::from)
}

fn failed(error: &Error) -> Response {
    if error.is_too_large() {
        let mut response = fields::too_large(Wording::ProblemDetails, error);
        FieldSet::policy_only(Dialects::default(), error.limit()).write_to(response.headers_mut());
        return response.map(Body::from);
    }
    // The client is told nothing about the store, so the log has to be.
    #[cfg(feature = "tracing")]
    {
        let limit = error.limit().name();
        let error: &(dyn std::error::Error + 'static) = error;
        tracing::error!(limit, error, "no decision");
    }
    unavailable()
}

fn unavailable() -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    fields::failure(Wording::ProblemDetails, status, RetryAfter::Seconds).map(Body::from)
}
