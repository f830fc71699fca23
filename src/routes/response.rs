//! Refusals as responses, so that handlers can return them by `?`, and permits as header fields.

use std::convert::Infallible;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use bytes::Bytes;

use crate::limiter::{Permit, RateLimited, Snapshot};
use crate::middleware::{RefusalBody, ResponseStyle, response_of, snapshot_fields};

/// Responds like a layer of the limiter: 429 with `Retry-After` and problem details for a refusal,
/// 413 if the cost can never fit, and 503 if the store fails.
///
/// The limiter's [`dialects`](crate::RateLimiter::dialects) and
/// [`on_refusal`](crate::RateLimiter::on_refusal) apply, whatever the layers around the handler say.
impl IntoResponse for RateLimited {
    fn into_response(self) -> Response {
        response_of(&self).map(Body::from)
    }
}

/// Adds the header fields that show how the limit stands, in the
/// [dialects](crate::RateLimiter::dialects) of its limiter.
///
/// # Examples
///
/// ```
/// use axum::extract::State;
/// use axum::response::IntoResponse;
/// use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter, Snapshot};
///
/// const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(100, DAY));
///
/// async fn export(State(limiter): State<RateLimiter>) -> Result<(Snapshot, String), RateLimited> {
///     let permit = limiter.limit(&EXPORTS).key("alice").cost(30).await?;
///     Ok((permit.snapshot(), "exported".to_owned()))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let response = export(State(RateLimiter::in_memory())).await.into_response();
/// assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with("\"exports\";r=70;"));
/// # }
/// ```
impl IntoResponseParts for Snapshot {
    type Error = Infallible;

    fn into_response_parts(self, parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        Ok(with_fields(&[self], parts))
    }
}

/// Adds the header fields that show how all limits of the permit stand; nothing if it is [not
/// decided](Permit::is_decided).
impl IntoResponseParts for &Permit<'_> {
    type Error = Infallible;

    fn into_response_parts(self, parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if !self.is_decided() {
            return Ok(parts);
        }
        let snapshots: Vec<_> = self.snapshots().collect();
        Ok(with_fields(&snapshots, parts))
    }
}

/// As for `&Permit`. The tokens stay taken.
impl IntoResponseParts for Permit<'_> {
    type Error = Infallible;

    fn into_response_parts(self, parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        (&self).into_response_parts(parts)
    }
}

fn with_fields(snapshots: &[Snapshot], mut parts: ResponseParts) -> ResponseParts {
    if let Some(first) = snapshots.first() {
        let style = ResponseStyle::of(first.speech());
        if let Some(fields) = snapshot_fields(snapshots, &style) {
            let mut headers = std::mem::take(parts.headers_mut());
            fields.write_to(&mut headers, parts.extensions_mut());
            *parts.headers_mut() = headers;
        }
    }
    parts
}

/// The body of `Json(..).into_response()` and the like, which is at hand as a whole.
///
/// A stream that has to be waited for cannot be the body of a refusal. It is sent as an empty one, and
/// the log says so.
impl RefusalBody for Body {
    fn into_bytes(self) -> Bytes {
        let whole = pin!(to_bytes(self, usize::MAX));
        match whole.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(body)) => body,
            _ => {
                #[cfg(feature = "tracing")]
                tracing::error!("the body of a refusal is not at hand, so an empty one is sent");
                Bytes::new()
            }
        }
    }
}
