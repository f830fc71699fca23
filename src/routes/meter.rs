//! The extractor of a request's meter.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::Response;
use http::request::Parts;

use super::misuse::Misuse;
use crate::middleware::Meter;

/// Takes the meter of the request, inside of a layer that [settles](crate::RateLimitLayer::settle).
/// From now on, the request costs the count. If no layer settles, the response is 500, and the log
/// says once how to fix the route.
impl<S: Send + Sync> FromRequestParts<S> for Meter {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        Self::from_extensions(&parts.extensions).ok_or_else(|| MISUSE.response())
    }
}

/// `None` if no layer settles.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Meter {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::from_extensions(&parts.extensions))
    }
}

static MISUSE: Misuse = Misuse::new(
    "no meter: no rate limit around this route settles (call `.settle()` on its \
     layer, and add that after any layer that takes the meter: in axum, the last \
     `.layer(..)` runs first)",
);
