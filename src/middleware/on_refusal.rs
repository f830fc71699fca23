//! How a request is answered that does not run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::fields::Wording;
use crate::key::Head;
use crate::limiter::{RateLimited, Snapshot};

/// The response to requests that do not run: those that are refused, those without a key, and all
/// while the store fails.
///
/// A gRPC request (a POST over HTTP/2 with the content type `application/grpc`) gets a status of
/// gRPC whatever is set here, as its client can read nothing else: `RESOURCE_EXHAUSTED` for 429,
/// with `google.rpc.RetryInfo`, and `UNAVAILABLE` for 503. Its HTTP status is 200.
///
/// Every such response has `Cache-Control: no-store`, so that no cache serves it to other clients.
/// A response to HEAD has the header fields of the response to GET, including its `Content-Length`,
/// and no body.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use tollgate::middleware::OnRefusal;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// const ALL: Limit = Limit::new("all", Quota::token_bucket(1, MINUTE).initial(0));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let sorry = OnRefusal::handler(|refused| {
///     let path = refused.head().map_or("/", |head| head.uri().path());
///     let mut response = Response::new(format!("{path} is busy"));
///     *response.status_mut() = refused.status();
///     response
/// });
/// let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
/// let service = RateLimiter::in_memory().layer(&ALL).on_refusal(sorry).layer(hello);
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(response.status(), 429);
/// # Ok(())
/// # }
/// ```
#[doc(alias("429", "error_handler", "handler", "GovernorError"))]
#[derive(Clone, Default)]
pub struct OnRefusal {
    pub(super) wording: Wording,
    /// In place of that wording, but for gRPC.
    pub(super) handler: Option<Arc<Handler>>,
}

pub(super) type Handler = dyn Fn(&RefusedRequest<'_>) -> Response<Bytes> + Send + Sync;

impl OnRefusal {
    /// Problem details (RFC 9457) that name the limits that refused; the default.
    #[must_use]
    pub const fn problem_details() -> Self {
        Self { wording: Wording::ProblemDetails, handler: None }
    }

    /// A line of text, such as "Too Many Requests: refused by `api`, try again in 5 seconds".
    #[must_use]
    pub const fn plain_text() -> Self {
        Self { wording: Wording::PlainText, handler: None }
    }

    /// The response that this function returns.
    ///
    /// The body is text, bytes, or what `into_response` of axum makes of a value: see
    /// [`RefusalBody`]. The layer adds `Retry-After`, `Cache-Control: no-store` and the
    /// [fields](crate::fields::Dialect) that show how the limits stand, each unless the response
    /// already has it.
    ///
    /// The function also sets the status. It words all answers of the layer, such as a 503 while the
    /// store fails, a 400 without a key, or a 413 for a cost above the capacity: so take
    /// [`RefusedRequest::status`], which the layer would send.
    #[doc(alias("error_handler", "display_error", "message"))]
    #[must_use]
    pub fn handler<F, B>(handler: F) -> Self
    where
        F: Fn(&RefusedRequest<'_>) -> Response<B> + Send + Sync + 'static,
        B: RefusalBody,
    {
        let handler =
            move |refused: &RefusedRequest<'_>| handler(refused).map(RefusalBody::into_bytes);
        Self { handler: Some(Arc::new(handler)), ..Self::default() }
    }
}

impl fmt::Debug for OnRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (&self.handler, self.wording) {
            (Some(_), _) => "OnRefusal(handler)",
            (None, Wording::PlainText) => "OnRefusal(plain text)",
            (None, _) => "OnRefusal(problem details)",
        })
    }
}

/// The body of a refusal, in the response of an [`OnRefusal::handler`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the body of a refusal",
    note = "return a `Response` of text or bytes, such as `Response::new(String::from(..))`, or what \
            `into_response()` of axum makes"
)]
pub trait RefusalBody {
    /// Returns the bytes of the body.
    fn into_bytes(self) -> Bytes;
}

macro_rules! bodies {
    ($($body:ty),*) => {$(
        impl RefusalBody for $body {
            fn into_bytes(self) -> Bytes {
                self.into()
            }
        }
    )*};
}

bodies!(Bytes, String, &'static str, Vec<u8>, &'static [u8]);

/// A request that does not run, for the function of [`OnRefusal::handler`].
///
/// See [`OnRefusal`] for an example.
#[doc(alias("GovernorError", "429"))]
#[derive(Debug)]
pub struct RefusedRequest<'r> {
    pub(super) head: Option<Head<'r>>,
    pub(super) status: StatusCode,
    pub(super) snapshots: &'r [Snapshot],
    pub(super) retry_after: Option<Duration>,
    pub(super) error: Option<&'r RateLimited>,
}

impl RefusedRequest<'_> {
    /// The head of the request; `None` if it is not at hand.
    #[must_use]
    pub const fn head(&self) -> Option<Head<'_>> {
        self.head
    }

    /// The status that the layer would send.
    ///
    /// It is 429 for a refusal, and 503 if the queue is full, the limiter is drained or the store
    /// fails. For a request without a key, it is that of [`missing_key`](super::Rule::missing_key).
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// How each of the limits stands that refused the request; empty if no limit refused it.
    #[must_use]
    pub const fn snapshots(&self) -> &[Snapshot] {
        self.snapshots
    }

    /// The wait after which the client may retry, including
    /// [jitter](crate::RateLimitLayer::jitter); `None` if no wait is known to help.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The error of a call that a handler has returned, or that of a request that no wait helps: it costs
    /// more than a limit can ever grant, or a limit grants [nothing](crate::Quota::none). `None` for all
    /// others.
    #[must_use]
    pub const fn error(&self) -> Option<&RateLimited> {
        self.error
    }
}
