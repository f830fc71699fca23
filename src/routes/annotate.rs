//! Limits on routes.

use std::convert::Infallible;

use axum::routing::{MethodRouter, Router};

use crate::middleware::{RateLimitLayer, Several};

/// Puts limits on routes, where they are declared.
///
/// A limit concerns the routes that are there when it is added, as any layer of axum does: what
/// `Router::new().layer(limit).route(..)` adds after it is not limited. So add limits last.
///
/// See the [module docs](super) for an example.
pub trait RateLimitExt: Sized {
    /// Holds the requests to these routes to the rules of a layer.
    ///
    /// Only requests that find one of the routes, or of the methods, declared so far pay: what ends
    /// in 404 or 405 does not. For that too, use the layer with [`Router::layer`] or
    /// [`MethodRouter::layer`].
    ///
    /// # Panics
    ///
    /// If there is none yet, as the limit would do nothing. A route of
    /// [`any`](axum::routing::any) has no method of its own: use [`MethodRouter::layer`] there.
    #[must_use]
    #[track_caller]
    fn rate_limit(self, layer: impl Into<RateLimitLayer<Several>>) -> Self;
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for Router<S> {
    #[track_caller]
    fn rate_limit(self, layer: impl Into<RateLimitLayer<Several>>) -> Self {
        self.route_layer(layer.into())
    }
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for MethodRouter<S, Infallible> {
    #[track_caller]
    fn rate_limit(self, layer: impl Into<RateLimitLayer<Several>>) -> Self {
        self.route_layer(layer.into())
    }
}
