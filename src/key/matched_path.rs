//! Keys from the route that a request matched.

use std::fmt;

use http::StatusCode;

use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::key_error::KeyError;
use crate::backend::Key;

/// Takes the route that axum matched as the key: `/users/{id}`, not `/users/7`.
///
/// The layer has to run after routing, so add it by `rate_limit` or `route_layer`. A request that
/// matches no route is answered with 404, also by a layer that all requests pass.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::key::{ClientIp, matched_path};
/// use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
///
/// const PER_ROUTE: Limit = Limit::new("per-route", Quota::token_bucket(10, MINUTE));
///
/// let limit = RateLimiter::in_memory().layer(&PER_ROUTE).key((matched_path(), ClientIp::peer()));
/// let app: Router = Router::new().route("/users/{id}", get(async || "hello")).rate_limit(limit);
/// # drop(app);
/// ```
#[must_use]
pub const fn matched_path() -> impl KeyExtractor + Copy + fmt::Debug {
    MatchedPath
}

#[derive(Clone, Copy, Debug)]
struct MatchedPath;

impl KeyExtractor for MatchedPath {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match head.extensions().get::<axum::extract::MatchedPath>() {
            Some(path) => Ok(Extracted::Key(Key::from(path.as_str()))),
            None => Err(KeyError::missing(
                "no key: the request has no matched path (add the layer by `rate_limit` or \
                 `route_layer`, so that it runs after routing)",
            )
            .with_status(StatusCode::NOT_FOUND)),
        }
    }
}
