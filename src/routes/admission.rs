//! The extractor of an `Admission`.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::Response;
use http::request::Parts;

use super::misuse::Misuse;
use crate::middleware::Admission;

/// Takes what the layers around the route have [exposed](crate::RateLimitLayer::expose). If they have
/// exposed nothing, the response is 500, and the log says once how to fix the route.
impl<S: Send + Sync> FromRequestParts<S> for Admission {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| MISUSE.response())
    }
}

/// `None` if no layer exposes anything.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Admission {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

static MISUSE: Misuse = Misuse::new(
    "no admission: no rate limit around this route is exposed (call `.expose()` on its \
     layer, and add that after any layer that takes the admission: in axum, the last \
     `.layer(..)` runs first)",
);
