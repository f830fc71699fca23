//! Limits on routes.

use std::convert::Infallible;

use axum::routing::{MethodRouter, Router};

use crate::middleware::RateLimitLayer;

/// Puts limits on routes, where they are declared.
///
/// See the [module docs](super) for an example.
pub trait RateLimitExt: Sized {
    /// Holds the requests to these routes to a limit.
    ///
    /// Only requests that find a route and a method pay: what ends in 404 or 405 does not. For
    /// those too, use the layer with [`Router::layer`].
    ///
    /// # Panics
    ///
    /// If there is no route yet, as with `route_layer`: the limit would do nothing.
    #[must_use]
    #[track_caller]
    fn rate_limit(self, layer: RateLimitLayer) -> Self;
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for Router<S> {
    #[track_caller]
    fn rate_limit(self, layer: RateLimitLayer) -> Self {
        self.route_layer(layer)
    }
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for MethodRouter<S, Infallible> {
    #[track_caller]
    fn rate_limit(self, layer: RateLimitLayer) -> Self {
        self.route_layer(layer)
    }
}
