//! Keys from extractors of axum.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::{Method, Request};
use tower_layer::Layer;
use tower_service::Service;

use crate::fields;

/// Runs an extractor of axum on each request, and keeps its result; made by [`extract`] and
/// [`extract_body`](super::extract_body()).
///
/// It is the layer, and with an inner service `I` the service. `B` is a number if the extractor reads
/// the body: the most bytes of one.
pub struct Extract<E, S, F, B = (), I = ()> {
    pub(super) inner: I,
    pub(super) keep: F,
    pub(super) state: S,
    pub(super) on_rejection: OnRejection,
    pub(super) max_bytes: B,
    extractor: PhantomData<fn() -> E>,
}

/// What happens to a request that the extractor has rejected.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnRejection {
    Respond,
    Continue,
}

/// Runs the axum extractor `E` on each request, and keeps its result as a request extension.
///
/// A limit inside of this layer takes its key from there, by [`extension`](crate::key::extension).
/// The closure `keep` converts the result into the value to keep.
///
/// Use it for keys that take a query, since a key extractor itself is not async. `E` may be any
/// extractor that needs no body ([`FromRequestParts`]); for the others, use
/// [`extract_body`](super::extract_body()). Add this layer outside of the limit, that
/// is, after it. If the extractor rejects the request, its rejection is the response. With
/// [`optional`](Extract::optional), the request passes instead, and its key is missing.
///
/// A handler that needs the value as well takes it by [`Extension`](axum::Extension). If it takes
/// `E` itself, the query runs twice.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use axum::extract::FromRequestParts;
/// use http::StatusCode;
/// use http::request::Parts;
/// use tollgate::routes::extract;
/// use tollgate::key::extension;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(60, MINUTE));
///
/// #[derive(Clone)]
/// struct Users; // in production, a pool of connections
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// impl FromRequestParts<Users> for User {
///     type Rejection = StatusCode;
///
///     async fn from_request_parts(parts: &mut Parts, users: &Users) -> Result<Self, StatusCode> {
/// #       let _ = users;
///         // .. a query ..
///         let id = parts.headers.get("x-user").and_then(|id| id.to_str().ok()?.parse().ok());
///         Ok(User { id: id.ok_or(StatusCode::UNAUTHORIZED)? })
///     }
/// }
///
/// let app: Router = Router::new()
///     .layer(RateLimiter::in_memory().layer(&PER_USER).key(extension(|user: &User| user.id)))
///     .layer(extract(|user: User| user).state(Users));
/// # drop(app);
/// ```
pub const fn extract<E, T, F>(keep: F) -> Extract<E, (), F>
where
    F: Fn(E) -> T + Clone,
    T: Clone + Send + Sync + 'static,
{
    Extract::new(keep, ())
}

impl<E, F, B> Extract<E, (), F, B> {
    pub(super) const fn new(keep: F, max_bytes: B) -> Self {
        let on_rejection = OnRejection::Respond;
        Self { inner: (), keep, state: (), on_rejection, max_bytes, extractor: PhantomData }
    }

    /// Sets the state of the extractor; `()` by default.
    #[must_use]
    pub fn state<S>(self, state: S) -> Extract<E, S, F, B> {
        let Self { inner, keep, on_rejection, max_bytes, extractor, .. } = self;
        Extract { inner, keep, state, on_rejection, max_bytes, extractor }
    }
}

impl<E, S, F, B> Extract<E, S, F, B> {
    /// Lets requests pass that the extractor rejects, without a value.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.on_rejection = OnRejection::Continue;
        self
    }
}

impl<E, S: Clone, F: Clone, B: Copy, I> Layer<I> for Extract<E, S, F, B> {
    type Service = Extract<E, S, F, B, I>;

    fn layer(&self, inner: I) -> Self::Service {
        let Self { keep, state, on_rejection, max_bytes, extractor, .. } = self.clone();
        Extract { inner, keep, state, on_rejection, max_bytes, extractor }
    }
}

impl<E, S, F, B, I> Extract<E, S, F, B, I> {
    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &I {
        &self.inner
    }

    /// The inner service, mutably.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// Returns the inner service.
    #[must_use]
    pub fn into_inner(self) -> I {
        self.inner
    }
}

impl<E, S, F, T, B, I> Service<Request<B>> for Extract<E, S, F, (), I>
where
    I: Service<Request<B>, Response: IntoResponse, Future: Send> + Clone + Send + 'static,
    E: FromRequestParts<S> + 'static,
    S: Clone + Send + Sync + 'static,
    F: Fn(E) -> T + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    B: Send + 'static,
{
    type Response = Response;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, I::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` readied this very service, so the future must own it; the clone left behind
        // will be readied before its own first call.
        let clone = self.clone();
        let Self { inner: mut ready, keep, state, on_rejection, .. } = mem::replace(self, clone);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match (E::from_request_parts(&mut parts, &state).await, on_rejection) {
                (Ok(found), _) => drop(parts.extensions.insert(keep(found))),
                (Err(rejection), OnRejection::Respond) => {
                    return Ok(omit_body_for_head(&parts.method, rejection.into_response()));
                }
                (Err(_), OnRejection::Continue) => {}
            }
            let response = ready.call(Request::from_parts(parts, body)).await?;
            Ok(response.into_response())
        })
    }
}

/// Removes the body of a rejection to HEAD, and keeps its `Content-Length`.
pub(super) fn omit_body_for_head(method: &Method, mut rejection: Response) -> Response {
    if method == Method::HEAD {
        let length = rejection.body().size_hint().exact();
        *rejection.body_mut() = Body::empty();
        fields::put_content_length(&mut rejection, length);
    }
    rejection
}

impl<E, S: Clone, F: Clone, B: Copy, I: Clone> Clone for Extract<E, S, F, B, I> {
    fn clone(&self) -> Self {
        let Self { inner, keep, state, on_rejection, max_bytes, .. } = self;
        Self {
            inner: inner.clone(),
            keep: keep.clone(),
            state: state.clone(),
            on_rejection: *on_rejection,
            max_bytes: *max_bytes,
            extractor: PhantomData,
        }
    }
}

impl<E, S, F, B: fmt::Debug, I: fmt::Debug> fmt::Debug for Extract<E, S, F, B, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extract")
            .field("inner", &self.inner)
            .field("extractor", &format_args!("{}", type_name::<E>()))
            .field("on_rejection", &self.on_rejection)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
