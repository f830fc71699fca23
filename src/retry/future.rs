//! The future of a response: sent, waiting, or about to be sent again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use super::policy::Policy;

pin_project! {
    /// The future of [`Retry`](super::Retry).
    ///
    /// # Panics
    ///
    /// If it has to wait outside of a tokio runtime, or in one whose time is not enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the request with all its copies, and the future of the inner service.
    /// Nothing is sent from then on.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: RetryState<S::Future>,
        // Nothing once no further send is allowed.
        again: Option<Again<S, B>>,
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

/// What it takes to send a request again.
pub(super) struct Again<S, B> {
    policy: Arc<Policy>,
    service: S,
    request: Request<B>,
    /// How often it may still be sent; never zero.
    resends: u32,
    /// How long it may still be waited for.
    wait_left: Duration,
}

impl<S, B> Again<S, B> {
    pub(super) fn new(policy: Arc<Policy>, service: S, request: Request<B>, resends: u32) -> Self {
        Self { wait_left: policy.max_wait, policy, service, request, resends }
    }

    /// Takes the wait that a response asks for from what is left; `None` if it is the answer.
    fn wait<R>(&mut self, response: &Response<R>) -> Option<Duration> {
        let wait = self.policy.wait(response, self.wait_left)?;
        self.wait_left = self.wait_left.saturating_sub(wait);
        Some(wait)
    }
}

impl<S, B> Again<S, B>
where
    S: Service<Request<B>>,
    B: Clone,
{
    /// Sends the request by the service, which is ready; what is left is for the time after.
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
    pub(super) const fn new(future: S::Future, again: Option<Again<S, B>>) -> Self {
        Self { state: RetryState::Sent { future }, again }
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
                    let response = ready!(future.poll(cx))?;
                    match this.again.as_mut().and_then(|again| again.wait(&response)) {
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
                    // Only who has what it takes to send again comes here.
                    let Some(again) = this.again.as_mut() else { return Poll::Pending };
                    ready!(again.service.poll_ready(cx))?;
                    let Some(again) = this.again.take() else { return Poll::Pending };
                    let (future, again) = again.send();
                    *this.again = again;
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
