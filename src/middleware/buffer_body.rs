//! Keys and costs from the body of a request, without axum.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::body::ResponseBody;
use super::buffered_body::{BufferError, BufferedBody, buffer};
use super::reject::render_failure;
use crate::key::Head;

/// Reads the body of each request, and keeps what a closure finds in it; made by [`buffer_body`].
///
/// It is the layer, and with an inner service `I` the service.
#[derive(Clone)]
pub struct BufferBody<F, I = ()> {
    inner: I,
    read: F,
    max_bytes: usize,
    is_optional: bool,
}

/// Reads the body of each request into memory, up to `max_bytes`, and keeps what `read` finds in it
/// as a request extension.
///
/// A limit inside of this layer takes its key from there, by [`extension`](crate::key::extension())
/// and its cost by [`cost_with`](crate::Rule::cost_with). Add
/// the layer outside of the limit. The inner service gets its body back as a [`BufferedBody`]. With
/// axum, `tollgate::routes::extract_body` does the same with the extractors of axum.
///
/// # Answers of the layer
///
/// * 413 to a body above `max_bytes`: at once if its length is known, as from `Content-Length`,
///   else when that many bytes have come.
/// * The status that `read` returns as its error, unless the layer is
///   [`optional`](BufferBody::optional).
/// * 400 to a body that ends with an error.
///
/// Their bodies are problem details; a gRPC request gets a status of gRPC. Such requests never
/// reach the limit, and take nothing.
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
/// use std::convert::Infallible;
///
/// use http::{Request, Response, StatusCode};
/// use tollgate::key::extension;
/// use tollgate::middleware::{BufferedBody, buffer_body};
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(1, HOUR));
///
/// #[derive(Clone)]
/// struct Email(String);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let by_email = buffer_body(16 * 1024, |_head, body| {
///     let login: serde_json::Value =
///         serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)?;
///     let email = login["email"].as_str().ok_or(StatusCode::BAD_REQUEST)?;
///     Ok(Email(email.to_owned()))
/// });
/// let login = service_fn(async |request: Request<BufferedBody>| {
///     Ok::<_, Infallible>(Response::new(format!("read {} bytes", request.body().bytes().len())))
/// });
/// let key = extension(|email: &Email| email.0.clone());
/// let limit = RateLimiter::in_memory().layer(&LOGIN).key(key);
/// let service = by_email.layer(limit.layer(login));
///
/// let alice = r#"{"email":"alice@example.com"}"#;
/// for (body, status) in [(alice, 200), (alice, 429), ("{}", 400), (&"1".repeat(20_000), 413)] {
///     let request = Request::new(body.to_owned());
///     assert_eq!(service.clone().oneshot(request).await?.status(), status);
/// }
/// # Ok(())
/// # }
/// ```
pub const fn buffer_body<F, T>(max_bytes: usize, read: F) -> BufferBody<F>
where
    F: Fn(&Head<'_>, &Bytes) -> Result<T, StatusCode> + Clone,
    T: Clone + Send + Sync + 'static,
{
    BufferBody { inner: (), read, max_bytes, is_optional: false }
}

impl<F> BufferBody<F> {
    /// Lets requests pass for which the closure returns an error, without a value.
    ///
    /// A body that is too large or broken is answered as before.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }
}

impl<F: Clone, I> Layer<I> for BufferBody<F> {
    type Service = BufferBody<F, I>;

    fn layer(&self, inner: I) -> BufferBody<F, I> {
        let Self { read, max_bytes, is_optional, .. } = self.clone();
        BufferBody { inner, read, max_bytes, is_optional }
    }
}

impl<F, I: fmt::Debug> fmt::Debug for BufferBody<F, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferBody")
            .field("inner", &self.inner)
            .field("max_bytes", &self.max_bytes)
            .field("is_optional", &self.is_optional)
            .finish_non_exhaustive()
    }
}

impl<F, I> BufferBody<F, I> {
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

impl<F, T, B, R, I> Service<Request<B>> for BufferBody<F, I>
where
    I: Service<Request<BufferedBody>, Response = Response<R>, Future: Send>
        + Clone
        + Send
        + 'static,
    F: Fn(&Head<'_>, &Bytes) -> Result<T, StatusCode> + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    B: Body<Data: Send> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = I::Error;
    type Future = BoxedResponse<R, I::Error>;

    /// Always ready: the inner service is made ready when the body is there.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> BoxedResponse<R, I::Error> {
        let Self { mut inner, read, max_bytes, is_optional } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = match buffer(body, max_bytes).await {
                Ok(body) => body,
                Err(error) => {
                    let (status, detail) = match error {
                        BufferError::TooLarge => (
                            StatusCode::PAYLOAD_TOO_LARGE,
                            format!("the body has more than {max_bytes} bytes"),
                        ),
                        BufferError::Broken(_) => {
                            (StatusCode::BAD_REQUEST, "the body could not be read".to_owned())
                        }
                    };
                    let response = render_failure(&Head::from(&parts), status, Some(&detail));
                    return Ok(response.map(ResponseBody::refusal));
                }
            };
            let found = read(&Head::from(&parts), body.bytes());
            match found {
                Ok(found) => drop(parts.extensions.insert(found)),
                Err(_) if is_optional => {}
                Err(status) => {
                    let response = render_failure(&Head::from(&parts), status, None);
                    return Ok(response.map(ResponseBody::refusal));
                }
            }
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            let response = inner.call(Request::from_parts(parts, body)).await?;
            Ok(response.map(|body| ResponseBody::inner(body, None)))
        })
    }
}

/// The future of a [`BufferBody`]: reads the body, then runs the inner service. Dropping it drops the body,
/// or the future of the inner service.
type BoxedResponse<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;
