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
    /// On a [`Router`], all requests pay that find one of the routes declared so far: what ends in
    /// 404 does not. For that too, use the layer with [`Router::layer`]. On a [`MethodRouter`], the
    /// methods declared so far pay, and those that the route does not have; methods that are added
    /// later do not.
    ///
    /// # Panics
    ///
    /// If a [`Router`] has no route yet: the limit would do nothing.
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
    fn rate_limit(self, layer: RateLimitLayer) -> Self {
        // Not `route_layer`, to which a route of `any` looks like one without methods.
        self.layer(layer)
    }
}
