//! Limits on routes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::routing::{MethodRouter, Router};

use crate::middleware::{RateLimitLayer, Several};

/// Puts limits on routes, where they are declared.
///
/// A limit concerns the routes that are there when it is added, as any layer of axum does: what
/// `Router::new().layer(limit).route(..)` adds after it is not limited, nor is a method or a fallback
/// that is added after it to a route. So add limits last.
///
/// See the [module docs](super) for an example.
pub trait RateLimitExt: Sized {
    /// Holds the requests to these routes to the rules of a layer.
    ///
    /// | declared so far | pays | does not pay |
    /// |---|---|---|
    /// | a route: `get(..)`, `get(..).fallback(..)`, `any(..)` | all its methods, and its own fallback | axum's 405 for other methods |
    /// | a [`Router`] | all its routes, also those that end in 405 | the 404 of other paths, and [`Router::fallback`] |
    ///
    /// What a fallback of a route answers always pays, be it 405: axum runs it like a handler. For the
    /// fallback of a router, and for 404, use the layer with [`Router::layer`].
    ///
    /// # Panics
    ///
    /// If there is nothing to limit yet: a [`Router`] without routes, also one with a fallback alone, or
    /// a route without a method and a fallback. Add the routes first, or use the layer with
    /// [`Router::layer`], which limits the router's fallback.
    #[must_use]
    #[track_caller]
    fn rate_limit(self, layer: impl Into<RateLimitLayer<Several>>) -> Self;
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for Router<S> {
    #[track_caller]
    fn rate_limit(self, layer: impl Into<RateLimitLayer<Several>>) -> Self {
        assert!(
            self.has_routes(),
            "this router has no routes yet, so `rate_limit` would limit nothing (add the routes first, \
             or use `.layer(..)`, which limits the router's fallback)"
        );
        self.route_layer(layer.into())
    }
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for MethodRouter<S, Infallible> {
    #[track_caller]
    fn rate_limit(self, layer: impl Into<RateLimitLayer<Several>>) -> Self {
        // `route_layer` leaves the fallback out, which is the handler of `any`. `layer` includes it,
        // and axum's own 405 as well.
        match has_fallback(&self) {
            true => self.layer(layer.into()),
            false => {
                assert!(
                    has_method(&self),
                    "this route has no method and no fallback yet, so `rate_limit` would limit nothing \
                     (add the handler first, as in `get(handler).rate_limit(..)`)"
                );
                self.route_layer(layer.into())
            }
        }
    }
}

/// Whether a route has a fallback of its own, in place of axum's 405.
///
/// axum has no method that tells, but a default fallback gives way to any other where routes are merged.
/// So a default one that holds a token is merged into a copy of the route. If axum drops the token, the
/// route has a fallback of its own. Of two default ones, axum keeps the one that is merged in. If it
/// kept the other, 405 would pay too, and no handler would be left out.
fn has_fallback<S: Clone + Send + Sync + 'static>(route: &MethodRouter<S, Infallible>) -> bool {
    let token = Arc::new(());
    let default = MethodRouter::<S>::new().layer(axum::Extension(Arc::clone(&token)));
    let merged = route.clone().merge(default);
    let is_dropped = Arc::strong_count(&token) == 1;
    drop(merged);
    is_dropped
}

/// Whether a route that has no fallback of its own has any method.
///
/// axum has no method that tells, but a layer is put around each method and around the fallback. So
/// more copies of a token are in a route with methods than in one without.
fn has_method<S: Clone + Send + Sync + 'static>(route: &MethodRouter<S, Infallible>) -> bool {
    let copies = |route: MethodRouter<S, Infallible>| {
        let token = Arc::new(());
        let layered: MethodRouter<S, Infallible> = route.layer(axum::Extension(Arc::clone(&token)));
        let copies = Arc::strong_count(&token);
        drop(layered);
        copies
    };
    copies(route.clone()) > copies(MethodRouter::new())
}
