//! Refusals as responses, so that handlers can return them by `?`.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::clock::Timestamp;
use crate::fields::{
    self, Dialects, FieldSet, FieldSetBuilder, Member, PolicyText, RetryAfter, RetryHint, Wording,
};
use crate::limiter::{Limit, RateLimited, Snapshot};

/// Responds like the layer: 429 with `Retry-After` and problem details for a refusal, 429 without
/// `Retry-After` for a cost that can never fit, and 503 if the store fails.
impl IntoResponse for RateLimited {
    fn into_response(self) -> Response {
        match self.retry_after() {
            Some(after) => refused(&self, after),
            None if self.is_too_large() => too_large(self.limit()),
            None => unavailable(&self),
        }
    }
}

fn refused(refusal: &RateLimited, after: Duration) -> Response {
    let snapshots = refusal.snapshots();
    let names: Vec<_> = snapshots.iter().map(|snapshot| snapshot.limit().name()).collect();
    let now = snapshots.first().map_or(Timestamp::UNIX_EPOCH, Snapshot::at);
    let hint = RetryHint { after, now, format: RetryAfter::Seconds };
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = fields::refusal(Wording::ProblemDetails, status, &names, hint);
    let mut builder = FieldSetBuilder::new(Dialects::default(), None);
    for snapshot in snapshots {
        let (limit, level) = (snapshot.limit(), snapshot.level());
        let policy = &PolicyText::new(limit);
        builder.push(Member { policy, limit, level, partition_key: None });
    }
    builder.build().write_to(response.headers_mut());
    response.map(Body::from)
}

fn too_large(limit: &Limit) -> Response {
    let mut response = fields::too_large(Wording::ProblemDetails, limit);
    FieldSet::policy_only(Dialects::default(), limit).write_to(response.headers_mut());
    response.map(Body::from)
}

#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
fn unavailable(error: &RateLimited) -> Response {
    // The response says nothing about the store, so the log has to.
    #[cfg(feature = "tracing")]
    {
        use std::error::Error as _;
        let limit = error.limit().name();
        // A log in JSON has the message of an error, and none of its sources.
        let error: &(dyn std::error::Error + 'static) = error.source().unwrap_or(error);
        tracing::error!(limit, error, "no decision");
    }
    let status = StatusCode::SERVICE_UNAVAILABLE;
    fields::failure(Wording::ProblemDetails, status, None, RetryAfter::Seconds).map(Body::from)
}
