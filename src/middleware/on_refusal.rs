//! How a request is answered that does not run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::key::Head;
use crate::limiter::{RateLimited, Snapshot};

/// How a request is answered that does not run: because it was refused, because the store failed,
/// or because its key is missing.
///
/// A gRPC request (a POST over HTTP/2 of content type `application/grpc`) is answered by a status of
/// gRPC whatever this says, as its client can read nothing else: `RESOURCE_EXHAUSTED` for 429, with
/// `google.rpc.RetryInfo`, and `UNAVAILABLE` for 503. Its HTTP status is 200.
///
/// Every answer has `Cache-Control: no-store`, so that no cache answers other clients by it. An answer to
/// HEAD has the header fields of the answer to GET, its `content-length` among them, and no body.
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
/// const ALL: Limit = Limit::new("all", Quota::token_bucket(1, MINUTE));
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
/// let service = RateLimiter::in_memory().layer(&ALL).cost(2).on_refusal(sorry).layer(hello);
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(response.status(), 429);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct OnRefusal(RefusalWording);

#[derive(Clone, Default)]
pub(super) enum RefusalWording {
    #[default]
    ProblemDetails,
    PlainText,
    Handler(Arc<Handler>),
}

pub(super) type Handler = dyn Fn(&RefusedRequest<'_>) -> Response<Bytes> + Send + Sync;

impl OnRefusal {
    /// Problem details (RFC 9457), which name the limits that have refused; so it is if nothing
    /// else is said.
    #[must_use]
    pub const fn problem_details() -> Self {
        Self(RefusalWording::ProblemDetails)
    }

    /// A line of text, such as "Too Many Requests: refused by `api`, try again in 5 seconds".
    #[must_use]
    pub const fn plain_text() -> Self {
        Self(RefusalWording::PlainText)
    }

    /// What this function makes of the refusal.
    ///
    /// The layer adds `Retry-After`, `Cache-Control: no-store` and the
    /// [fields](crate::fields::Dialect) that tell how the limits stand, each unless the response has
    /// it already. The status is the function's own:
    /// [`RefusedRequest::status`] is what the layer would say.
    #[must_use]
    pub fn handler<F, B>(handler: F) -> Self
    where
        F: Fn(&RefusedRequest<'_>) -> Response<B> + Send + Sync + 'static,
        B: Into<Bytes>,
    {
        Self(RefusalWording::Handler(Arc::new(move |refused| handler(refused).map(Into::into))))
    }

    pub(super) const fn wording(&self) -> &RefusalWording {
        &self.0
    }
}

impl fmt::Debug for OnRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            RefusalWording::ProblemDetails => "OnRefusal(problem details)",
            RefusalWording::PlainText => "OnRefusal(plain text)",
            RefusalWording::Handler(_) => "OnRefusal(handler)",
        })
    }
}

/// A request that does not run, as a [handler](OnRefusal::handler) sees it.
///
/// See [`OnRefusal`] for an example.
#[derive(Debug)]
pub struct RefusedRequest<'r> {
    pub(super) head: Option<Head<'r>>,
    pub(super) status: StatusCode,
    pub(super) snapshots: &'r [Snapshot],
    pub(super) retry_after: Option<Duration>,
    pub(super) error: Option<&'r RateLimited>,
}

impl RefusedRequest<'_> {
    /// The head of the request; `None` where it is not at hand.
    #[must_use]
    pub const fn head(&self) -> Option<Head<'_>> {
        self.head
    }

    /// The status that the layer would answer: 429; 503 where the queue is full, the limiter is
    /// drained or the store does not answer; or what is set for requests whose key is
    /// [missing](super::MissingKey).
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// How each limit stands that refused; none if it was something else.
    #[must_use]
    pub const fn snapshots(&self) -> &[Snapshot] {
        self.snapshots
    }

    /// When the request may come back, [jitter](crate::RateLimitLayer::jitter) included; `None` if
    /// no wait is known to help.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Why the request can never run, where it costs more than a limit can ever grant.
    #[must_use]
    pub const fn error(&self) -> Option<&RateLimited> {
        self.error
    }
}
