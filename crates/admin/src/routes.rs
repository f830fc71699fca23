//! Routes for operators: the limits, how a key stands, which keys are in debt or blocked, and what an
//! operator does about it.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::map_response;
use axum::response::IntoResponse;
use axum::routing::{Route, get, post};
use tower_layer::Layer;
use tower_service::Service;

use super::state::AdminState;
use super::{changes, error, looks, reply};
use tollgate::{Limit, RateLimiter};

/// Makes routes for operators. **Without a [guard](UnguardedRoutes::guard), any client that reaches them
/// may use them.** So what this returns is no router yet, and cannot be mounted by mistake:
/// `.guard(layer)` makes the router, with your authentication around each of its routes, and
/// [`without_authentication`](UnguardedRoutes::without_authentication) makes one that says by its name
/// what is missing.
///
/// | request | does |
/// |---|---|
/// | `GET /` | shows the limits and their numbers |
/// | `GET /{limit}/{key}?cost=1` | shows how a key stands, and how long a cost has to wait |
/// | `GET /{limit}?state=blocked&max=100&after=..` | lists keys that are blocked or in debt, where the store can |
/// | `DELETE /{limit}/{key}` | [resets](RateLimiter::reset) |
/// | `POST /{limit}/{key}/penalize` with `{"tokens": 5}` | [penalizes](RateLimiter::penalize) |
/// | `POST /{limit}/{key}/block` with `{"seconds": 3600}` or `{"time": "1 hour"}` | [blocks](RateLimiter::block) |
///
/// A key is written in its [text form](tollgate::Key::to_text), as the list shows it, and percent-encoded
/// once, as in any path: `alice`, `n=7` for the number 7, `ip=192.0.2.1` for an address. The guide
/// [looking in](crate::guide) shows each answer.
///
/// # What is safe
///
/// * Answers and errors are JSON, with `nosniff` and `no-store`: a browser shows nothing of them as a
///   page, and no cache keeps them. They show keys, which may be personal data.
/// * Nothing changes by GET. A request that changes something has to be one that no form of another
///   site can send: DELETE, or POST with the content type `application/json`, and no `Sec-Fetch-Site`
///   of another site. So a page that an operator visits cannot use a cookie of theirs, unless a layer
///   for CORS allows it. Do not put a layer before these routes that takes the method from a field.
/// * A body has at most 4 KiB, and a page at most 1,000 keys.
/// * Each change is logged (feature `tracing`), with the limit and what was done, without the key.
///
/// # Panics
///
/// If two limits have the same name. Of plans, which share a name and so their buckets, give one.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use axum::extract::Request;
/// use axum::http::{StatusCode, header::AUTHORIZATION};
/// use axum::middleware::{Next, from_fn};
/// use axum::response::Response;
/// use tollgate_admin::admin;
/// use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
/// const API: Limit = Limit::new("api", Quota::token_bucket(600, MINUTE));
///
/// /// In production, what your service knows operators by.
/// async fn operators_only(request: Request, next: Next) -> Result<Response, StatusCode> {
///     let given = request.headers().get(AUTHORIZATION).ok_or(StatusCode::UNAUTHORIZED)?;
///     match given == "Bearer of-this-example" {
///         true => Ok(next.run(request).await),
///         false => Err(StatusCode::FORBIDDEN),
///     }
/// }
///
/// let limiter = RateLimiter::in_memory();
/// let limits = admin(&limiter, [&LOGIN, &API]).guard(from_fn(operators_only));
/// let app: Router = Router::new().nest("/admin/limits", limits);
/// # drop(app);
/// ```
///
/// Without a guard, it is no router:
///
/// ```compile_fail,E0308
/// # use axum::Router;
/// # use tollgate_admin::admin;
/// # use tollgate::{HOUR, Limit, Quota, RateLimiter};
/// # const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
/// # let limiter = RateLimiter::in_memory();
/// let app: Router = Router::new().nest("/admin/limits", admin(&limiter, [&LOGIN]));
/// ```
#[doc(alias = "dashboard")]
#[doc(alias = "actuator")]
#[track_caller]
pub fn admin<L: AsRef<Limit>>(
    limiter: &RateLimiter,
    limits: impl IntoIterator<Item = L>,
) -> UnguardedRoutes {
    let limits: Vec<Limit> = limits.into_iter().map(|limit| limit.as_ref().clone()).collect();
    for (nth, limit) in limits.iter().enumerate() {
        let is_twice = limits.iter().take(nth).any(|other| other.name() == limit.name());
        assert!(
            !is_twice,
            "two limits have the name `{}`, and the routes find limits by name (of plans that \
             share a name, give one)",
            limit.name()
        );
    }
    UnguardedRoutes { state: Arc::new(AdminState::new(limiter.clone(), limits)) }
}

/// Routes for operators, without a guard: they are no router yet; made by [`admin`].
#[must_use = "these routes have no guard yet: `.guard(layer)` makes the router"]
pub struct UnguardedRoutes {
    state: Arc<AdminState>,
}

impl UnguardedRoutes {
    /// The router, behind a layer that lets operators alone through: your authentication, as a layer
    /// of tower or by [`axum::middleware::from_fn`].
    ///
    /// The layer is around everything, also around the answers to paths and methods that there are
    /// not: these name your limits.
    pub fn guard<S, L>(self, layer: L) -> Router<S>
    where
        L: Layer<Route> + Clone + Send + Sync + 'static,
        L::Service: Service<Request> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Response: IntoResponse + 'static,
        <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
        S: Clone + Send + Sync + 'static,
    {
        self.without_authentication().layer(layer)
    }

    /// The router as it is: any client that reaches it sees the keys of all clients, and blocks them
    /// or sets them free.
    ///
    /// For a listener that only operators reach, such as one on `127.0.0.1` of a server. Not for one
    /// on a machine with a browser: a page of any site reaches that as well, by a name of its own that
    /// resolves to `127.0.0.1` (DNS rebinding), and to the browser it is a page of the same site.
    pub fn without_authentication<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let key = get(looks::show_key).delete(changes::reset);
        Router::new()
            .route("/", get(looks::show_limits))
            .route("/{limit}", get(looks::list_debtors))
            .route("/{limit}/{key}", key)
            .route("/{limit}/{key}/penalize", post(changes::penalize))
            .route("/{limit}/{key}/block", post(changes::block))
            .method_not_allowed_fallback(error::method_not_allowed)
            .fallback(error::not_found)
            .layer(map_response(reply::protect))
            .with_state(self.state)
    }
}

impl fmt::Debug for UnguardedRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.state.limits().iter().map(Limit::name).collect();
        f.debug_struct("UnguardedRoutes").field("limits", &limits).finish_non_exhaustive()
    }
}
