//! Keys and costs from the body, by extractors of axum.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, FromRequest};
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode};
use http_body::Frame;
use tower_layer::Layer;
use tower_service::Service;

use super::extract::{Extract, OnRejection, omit_body_for_head};
use crate::middleware::{BufferError, buffer};

/// Reads the body of each request into memory, up to `max_bytes`, runs the axum extractor `E` on a
/// copy of the request, and keeps its result as a request extension.
///
/// A limit inside of this layer takes its key from there, by [`extension`](crate::key::extension())
/// and its cost by [`cost_with`](crate::Rule::cost_with). The
/// closure `keep` converts the result into the value to keep. `E` may be any extractor that reads
/// the body ([`FromRequest`]), such as `Json`, `Form`, or a tuple that ends with one. For
/// extractors that need no body, use [`extract`](super::extract()).
///
/// Add this layer outside of the limit, that is, after it, and only to routes with such a body:
/// around a whole router, it also rejects the requests that have none.
///
/// The handler gets its body back: the same bytes and trailers, in one frame, with a known length.
/// What the extractor changes in the head of its copy, the handler does not see.
///
/// # Answers of the layer
///
/// * 413 to a body above `max_bytes`, in axum's own words: at once if its length is known, as from
///   `Content-Length`, else when that many bytes have come.
/// * The rejection of the extractor, such as 400, 415 or 422 of `Json`. With
///   [`optional`](Extract::optional), the request passes instead, and its key is missing.
/// * 400, in axum's own words, to a body that ends with an error.
///
/// Such requests never reach the limit, and take nothing. In this layer, only `max_bytes` bounds
/// the body. The extractors of the handler keep to axum's `DefaultBodyLimit`, which is 2 MB by
/// default.
///
/// # What an attacker can do
///
/// The layer reads before the limit counts. Each request, of which HTTP/2 sends many over one
/// connection, can hold `max_bytes` of memory, for as long as the client takes to send them, and
/// for as long as it waits in a [queue](crate::RateLimitLayer::queue) of the limit. So choose a
/// small bound, keep a limit by address outside of this layer, and a timeout. A body that is still
/// to come holds no ready service: the inner service is made ready when the body is there.
///
/// # Cancel safety
///
/// Dropping the future of a request drops the body, or the future of the inner service.
///
/// # Examples
///
/// ```
/// use axum::{Json, Router, routing::post};
/// use serde::Deserialize;
/// use tollgate::key::extension;
/// use tollgate::routes::extract_body;
/// use tollgate::{HOUR, Limit, Quota, RateLimitExt, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
///
/// #[derive(Clone, Deserialize)]
/// struct Login {
///     email: String,
/// }
///
/// async fn login(Json(login): Json<Login>) -> String {
///     format!("hello {}\n", login.email)
/// }
///
/// let by_email = extension(|login: &Login| login.email.to_lowercase());
/// let limit = RateLimiter::in_memory().layer(&LOGIN).key(by_email);
/// let read = extract_body(16 * 1024, |Json(login): Json<Login>| login);
/// let app: Router =
///     Router::new().route("/login", post(login).rate_limit(limit).route_layer(read));
/// # drop(app);
/// ```
///
/// A cost as well. With the feature `credentials`, the key can be a `digest` of the address, so that
/// the store does not get the address itself:
///
/// ```
/// use axum::Json;
/// use serde::Deserialize;
/// use tollgate::key::extension;
/// use tollgate::routes::extract_body;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const MAILS: Limit = Limit::new("mails", Quota::token_bucket(100, MINUTE));
///
/// #[derive(Clone, Deserialize)]
/// struct Mail {
///     from: String,
///     to: Vec<String>,
/// }
///
/// let limit = RateLimiter::in_memory()
///     .layer(&MAILS)
///     .key(extension(|mail: &Mail| mail.from.to_lowercase()))
///     .cost_with(|head| head.extensions().get::<Mail>().map_or(1, |mail| mail.to.len() as u64));
/// let read = extract_body(64 * 1024, |Json(mail): Json<Mail>| mail);
/// # drop((limit, read));
/// ```
pub const fn extract_body<E, T, F>(max_bytes: usize, keep: F) -> Extract<E, (), F, usize>
where
    F: Fn(E) -> T + Clone,
    T: Clone + Send + Sync + 'static,
{
    Extract::new(keep, max_bytes)
}

impl<E, S, F, T, B, I> Service<Request<B>> for Extract<E, S, F, usize, I>
where
    I: Service<Request<Body>, Response: IntoResponse, Future: Send> + Clone + Send + 'static,
    E: FromRequest<S> + 'static,
    S: Clone + Send + Sync + 'static,
    F: Fn(E) -> T + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, I::Error>> + Send>>;

    /// Always ready: the inner service is made ready when the body is there.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { mut inner, keep, state, on_rejection, max_bytes, .. } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = match buffer(body, max_bytes).await.map_err(boxed) {
                Ok(body) => body,
                Err(error) => {
                    return Ok(omit_body_for_head(&parts.method, unread(error).await));
                }
            };
            let copy = Request::from_parts(parts.clone(), Body::new(body.clone()));
            // The body is within the bound of the layer, so that of axum must not apply as well.
            let copy = with_limit(DefaultBodyLimit::disable(), copy);
            match (E::from_request(copy, &state).await, on_rejection) {
                (Ok(found), _) => drop(parts.extensions.insert(keep(found))),
                (Err(rejection), OnRejection::Respond) => {
                    return Ok(omit_body_for_head(&parts.method, rejection.into_response()));
                }
                (Err(_), OnRejection::Continue) => {}
            }
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            let response = inner.call(Request::from_parts(parts, Body::new(body))).await?;
            Ok(response.into_response())
        })
    }
}

fn boxed(error: BufferError<impl Into<BoxError>>) -> BufferError<BoxError> {
    match error {
        BufferError::TooLarge => BufferError::TooLarge,
        BufferError::Broken(error) => BufferError::Broken(error.into()),
    }
}

/// The answer of axum to a body that it cannot read.
///
/// Only axum can make this rejection, and makes it of a body that fails in the same way.
async fn unread(error: BufferError<BoxError>) -> Response {
    let (limit, body) = match error {
        BufferError::TooLarge => (DefaultBodyLimit::max(0), Body::from("above the limit")),
        BufferError::Broken(error) => {
            (DefaultBodyLimit::disable(), Body::new(BrokenBody(Some(error))))
        }
    };
    match Bytes::from_request(with_limit(limit, Request::new(body)), &()).await {
        Err(rejection) => rejection.into_response(),
        Ok(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// A body of nothing but an error.
struct BrokenBody(Option<BoxError>);

impl HttpBody for BrokenBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}

/// Sets axum's limit on the body of a request, as `DefaultBodyLimit::apply` does, which the oldest
/// axum that this crate allows does not have.
fn with_limit(limit: DefaultBodyLimit, request: Request<Body>) -> Request<Body> {
    let Ok(request) = limit.layer(Echo).call(request).into_inner();
    request
}

/// Answers a request by itself.
struct Echo;

impl Service<Request<Body>> for Echo {
    type Response = Request<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Request<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(request))
    }
}
