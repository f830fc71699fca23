//! The extractor of the meter of a request.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::misuse::Misuse;
use crate::middleware::Meter;

/// Takes the meter of the request, below a layer that [settles](crate::RateLimitLayer::settle): from
/// now on the request costs what is counted.
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

/// A handler asks for a [`Meter`], and no layer around it settles. As a response it is 500, and the
/// log says how to mend that: once as an error, and then as detail.
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
///     "no meter: no rate limit around this route settles (say `.settle()` on its layer)"
/// );
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MissingMeter(());

impl fmt::Display for MissingMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no meter: no rate limit around this route settles (say `.settle()` on its layer)",
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
