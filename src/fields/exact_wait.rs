//! The exact wait of a refusal, for clients in the same process.

use std::time::Duration;

use http::{Extensions, Response};

/// The exact time after which a refused request is admitted, for clients in the same process.
///
/// `Retry-After` has whole seconds, so a client that obeys it comes back up to a second late. A
/// request with an `ExactWait` in its extensions asks for more: if a [layer of
/// ours](crate::RateLimitLayer) refuses it, the extensions of the response have an `ExactWait` with
/// the wait to the microsecond. So have those of a [`RateLimited`](crate::RateLimited) that a handler
/// returns, for any request. Extensions are not sent over a connection, so other clients see no
/// difference. `RetryLayer` asks for it, and obeys it.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use tollgate::clock::{Clock, ManualClock};
/// use tollgate::fields::ExactWait;
/// use tollgate::{Limit, Quota, RateLimiter, SECOND, Timestamp, backend::Memory};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// const API: Limit = Limit::new("api", Quota::token_bucket(8, SECOND).capacity(1));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
/// let limiter = RateLimiter::new(Memory::new().clock(clock));
/// let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
/// let service = limiter.layer(&API).layer(hello);
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(ExactWait::default());
/// service.clone().oneshot(request.clone()).await?;
/// let refusal = service.oneshot(request).await?;
/// assert_eq!(refusal.headers()["retry-after"], "1");
/// let exact: &ExactWait = refusal.extensions().get().unwrap();
/// assert_eq!(exact.wait(), Duration::from_millis(125));
/// # Ok(())
/// # }
/// ```
#[doc(alias("retry_after", "retry-after"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactWait(Duration);

impl ExactWait {
    /// The time from the refusal until the request is admitted; zero in a request, which asks for
    /// it.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.0
    }
}

/// Adds the exact wait to the response, if the request with these extensions asks for it. Without a
/// request, the response is that of a call, and has it anyway.
pub(crate) fn put_exact_wait<B>(
    response: &mut Response<B>,
    request: Option<&Extensions>,
    after: Duration,
) {
    if request.is_none_or(|request| request.get::<ExactWait>().is_some()) {
        response.extensions_mut().insert(ExactWait(after));
    }
}
