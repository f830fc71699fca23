//! The extractor of a request's meter.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::misuse::Misuse;
use crate::middleware::Meter;

/// Takes the meter of the request, inside of a layer that [settles](crate::RateLimitLayer::settle).
/// From now on, the request costs the count.
impl<S: Send + Sync> FromRequestParts<S> for Meter {
    type Rejection = MissingMeter;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingMeter> {
        Self::from_extensions(&parts.extensions).ok_or(MissingMeter(()))
    }
}

/// `None` if no layer settles.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Meter {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::from_extensions(&parts.extensions))
    }
}

/// The rejection of a handler that takes a [`Meter`], if no layer around it settles.
///
/// The response is 500. The log says how to fix the route, once as an error, and then at debug
/// level.
///
/// # Examples
///
/// ```
/// use axum::extract::FromRequestParts;
/// use http::Request;
/// use tollgate::middleware::Meter;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (mut parts, ()) = Request::new(()).into_parts();
/// let missing = <Meter as FromRequestParts<()>>::from_request_parts(&mut parts, &()).await;
/// assert_eq!(
///     missing.unwrap_err().to_string(),
///     "no meter: no rate limit around this route settles (call `.settle()` on its \
///      layer, and add that after any layer that takes the meter: in axum, the last \
///      `.layer(..)` runs first)"
/// );
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MissingMeter(());

impl fmt::Display for MissingMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no meter: no rate limit around this route settles (call `.settle()` on its \
             layer, and add that after any layer that takes the meter: in axum, the last \
             `.layer(..)` runs first)",
        )
    }
}

impl Error for MissingMeter {}

impl IntoResponse for MissingMeter {
    fn into_response(self) -> Response {
        MISUSE.response(&self)
    }
}

static MISUSE: Misuse = Misuse::new();
