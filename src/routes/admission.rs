//! The extractor of an `Admission`.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::misuse::Misuse;
use crate::middleware::Admission;

/// Takes what the layers around the route have [exposed](crate::RateLimitLayer::expose).
impl<S: Send + Sync> FromRequestParts<S> for Admission {
    type Rejection = MissingAdmission;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingAdmission> {
        parts.extensions.get::<Self>().cloned().ok_or(MissingAdmission(()))
    }
}

/// `None` if no layer exposes anything.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Admission {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

/// The rejection of a handler that takes an [`Admission`], if no layer around it exposes one.
///
/// The response is 500. The log says how to fix the route, once as an error, and then at debug
/// level.
///
/// # Examples
///
/// ```
/// use axum::extract::FromRequestParts;
/// use http::Request;
/// use tollgate::middleware::Admission;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (mut parts, ()) = Request::new(()).into_parts();
/// let missing = <Admission as FromRequestParts<()>>::from_request_parts(&mut parts, &()).await;
/// assert_eq!(
///     missing.unwrap_err().to_string(),
///     "no admission: no rate limit around this route is exposed (call `.expose()` on its \
///      layer, and add that after any layer that takes the admission: in axum, the last \
///      `.layer(..)` runs first)"
/// );
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MissingAdmission(());

impl fmt::Display for MissingAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no admission: no rate limit around this route is exposed (call `.expose()` on its \
             layer, and add that after any layer that takes the admission: in axum, the last \
             `.layer(..)` runs first)",
        )
    }
}

impl Error for MissingAdmission {}

impl IntoResponse for MissingAdmission {
    fn into_response(self) -> Response {
        MISUSE.response(&self)
    }
}

static MISUSE: Misuse = Misuse::new();
