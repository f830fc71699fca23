//! The future of a response: sends the request, waits, and sends it again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use super::policy::{Progress, RetryPolicy};
use tollgate::key::Head;

pin_project! {
    /// The future of [`Retry`](super::Retry).
    ///
    /// # Panics
    ///
    /// If it has to wait outside of a tokio runtime, or in a runtime without a timer.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the request with all its clones, and the future of the inner service. No
    /// further request is sent.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: RetryState<S::Future>,
        // `None` once no retry is left.
        resend: Option<Resend<S, B>>,
    }
}

pin_project! {
    #[project = RetryStateProjection]
    enum RetryState<F> {
        Sent { #[pin] future: F },
        Waiting { #[pin] sleep: Sleep },
        Readying,
    }
}

/// The state of a retry: the request, the service, and the rest of the bounds.
pub(super) struct Resend<S, B> {
    policy: Arc<RetryPolicy>,
    service: S,
    request: Request<B>,
    /// How many more times the request may be sent; never zero.
    resends: u32,
    progress: Progress,
}

impl<S, B> Resend<S, B> {
    pub(super) fn new(
        policy: Arc<RetryPolicy>,
        service: S,
        request: Request<B>,
        resends: u32,
    ) -> Self {
        let (began, wait_left) = (SystemTime::now(), policy.max_wait);
        let progress = Progress { began, retries: 0, wait_left };
        Self { policy, service, request, resends, progress }
    }

    /// The wait before the next send; `None` if this response is returned.
    fn wait<R>(&mut self, response: &mut Response<R>) -> Option<Duration> {
        let wait = self.policy.wait(&Head::new(&self.request), response, self.progress)?;
        self.progress.wait_left = self.progress.wait_left.saturating_sub(wait);
        self.progress.retries = self.progress.retries.saturating_add(1);
        Some(wait)
    }
}

impl<S, B> Resend<S, B>
where
    S: Service<Request<B>>,
    B: Clone,
{
    /// Sends the request to the service, which has to be ready. Also returns the state of the next
    /// retry.
    fn send(mut self) -> (S::Future, Option<Self>) {
        match self.resends.saturating_sub(1) {
            0 => (self.service.call(self.request), None),
            resends => {
                self.resends = resends;
                (self.service.call(self.request.clone()), Some(self))
            }
        }
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn new(future: S::Future, resend: Option<Resend<S, B>>) -> Self {
        Self { state: RetryState::Sent { future }, resend }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: Clone,
{
    type Output = Result<Response<R>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                RetryStateProjection::Sent { future } => {
                    let mut response = ready!(future.poll(cx))?;
                    match this.resend.as_mut().and_then(|resend| resend.wait(&mut response)) {
                        None => return Poll::Ready(Ok(response)),
                        Some(Duration::ZERO) => RetryState::Readying,
                        Some(wait) => RetryState::Waiting { sleep: tokio::time::sleep(wait) },
                    }
                }
                RetryStateProjection::Waiting { sleep } => {
                    ready!(sleep.poll(cx));
                    RetryState::Readying
                }
                RetryStateProjection::Readying => {
                    // `Readying` is entered only if `resend` is `Some`, and left in the poll that
                    // takes it.
                    let Some(resend) = this.resend.as_mut() else { return Poll::Pending };
                    ready!(resend.service.poll_ready(cx))?;
                    let Some(resend) = this.resend.take() else { return Poll::Pending };
                    let (future, resend) = resend.send();
                    *this.resend = resend;
                    RetryState::Sent { future }
                }
            };
            this.state.set(next);
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            RetryState::Sent { .. } => "ResponseFuture(sent)",
            RetryState::Waiting { .. } => "ResponseFuture(waiting)",
            RetryState::Readying => "ResponseFuture(readying)",
        })
    }
}
