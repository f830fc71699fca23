//! The method that puts limits on routes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::routing::{MethodRouter, Router};

use crate::middleware::IntoLayer;

/// Adds [`rate_limit`](Self::rate_limit) to routes and routers of axum.
///
/// **Add limits last.** Like any layer of axum, a limit applies to the routes that exist when it is
/// added. A route after `Router::new().layer(limit)` is not limited, and neither is a method or a
/// fallback that is added to a route after its limit.
///
/// See the [module docs](super) for an example.
#[doc(alias("route_layer", "GovernorLayer", "rate-limit"))]
pub trait RateLimitExt: Sized {
    /// Limits the requests to these routes by the rules of a layer.
    ///
    /// | declared so far | pays | does not pay |
    /// |---|---|---|
    /// | a route: `get(..)`, `get(..).fallback(..)`, `any(..)` | all its methods, and its own fallback | axum's 405 for other methods |
    /// | a [`Router`] | all its routes, also those that end in 405 | the 404 of other paths, and [`Router::fallback`] |
    ///
    /// A request that the fallback of a route answers always pays, even if the answer is 405, since
    /// axum runs it like a handler. To limit the fallback of a router, or 404, use
    /// [`Router::layer`].
    ///
    /// # Panics
    ///
    /// If there is nothing to limit yet: a [`Router`] without routes, also one with only a
    /// fallback, or a route without a method and a fallback. Add the routes first, or use the layer
    /// with [`Router::layer`], which limits the router's fallback.
    #[must_use]
    #[track_caller]
    fn rate_limit(self, layer: impl IntoLayer) -> Self;
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for Router<S> {
    #[track_caller]
    fn rate_limit(self, layer: impl IntoLayer) -> Self {
        assert!(
            self.has_routes(),
            "this router has no routes yet, so `rate_limit` would limit nothing (add the routes first, \
             or use `.layer(..)`, which limits the router's fallback)"
        );
        self.route_layer(layer.into_layer())
    }
}

impl<S: Clone + Send + Sync + 'static> RateLimitExt for MethodRouter<S, Infallible> {
    #[track_caller]
    fn rate_limit(self, layer: impl IntoLayer) -> Self {
        // `route_layer` excludes the fallback, which is the handler of `any`. `layer` includes it,
        // but also the 405 of axum.
        match has_fallback(&self) {
            true => self.layer(layer.into_layer()),
            false => {
                assert!(
                    has_method(&self),
                    "this route has no method and no fallback yet, so `rate_limit` would limit nothing \
                     (add the handler first, as in `get(handler).rate_limit(..)`)"
                );
                self.route_layer(layer.into_layer())
            }
        }
    }
}

/// Whether a route has a fallback of its own, in place of the 405 of axum.
///
/// axum has no method for that. But if two routes are merged, a default fallback gives way to any
/// other. So the function merges a default fallback that holds a token into a copy of the route. If
/// axum drops the token, the route has a fallback of its own. Of two default fallbacks, axum keeps
/// the one that is merged in. If a version of axum kept the other, 405 would pay as well, but no
/// handler would escape its limit.
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
