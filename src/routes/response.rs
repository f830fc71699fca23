//! Refusals as responses, so that handlers can leave by `?`.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::clock::Timestamp;
use crate::fields::{self, ComeBack, Dialects, Form, Known, Label, RetryAfter, Teller, Told};
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
    let come_back = ComeBack { after: refusal.retry_after(), now, told_as: RetryAfter::Seconds };
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = fields::refusal(Form::ProblemDetails, status, &names, come_back);
    let mut teller = Teller::new(Dialects::default(), true);
    for standing in refusal.limits() {
        let (limit, stand) = (standing.limit(), standing.stand());
        let label = &Label::of(limit);
        teller.push(Known { label, limit, stand, cost: 1, partition_key: None }, standing.at());
    }
    teller.told(None).tell(response.headers_mut());
    response.map(Body::from)
}

fn failed(error: &Error) -> Response {
    if error.is_too_large() {
        let mut response = fields::too_large(Form::ProblemDetails, error);
        Told::policy(Dialects::default(), error.limit()).tell(response.headers_mut());
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
    fields::failure(Form::ProblemDetails, status, RetryAfter::Seconds).map(Body::from)
}
