//! The service: sends a request, and keeps a clone for a retry.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::ResponseFuture;
use super::future::Resend;
use super::policy::RetryPolicy;
use tollgate::fields::ExactWait;
use tollgate::key::Head;

/// Retries the requests to `S` that are answered with `Retry-After`; made by
/// [`RetryLayer`](super::RetryLayer).
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    policy: Arc<RetryPolicy>,
}

impl<S> Retry<S> {
    pub(super) const fn new(inner: S, policy: Arc<RetryPolicy>) -> Self {
        Self { inner, policy }
    }

    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, mutably.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for Retry<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: Clone,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B> {
        let resend = match self.policy.resends(&Head::new(&request)) {
            0 => None,
            resends => {
                request.extensions_mut().insert(ExactWait::default());
                // `poll_ready` readied this very service, so the first call goes to it. The clone
                // is made ready before its own first call.
                let (service, request) = (self.inner.clone(), request.clone());
                Some(Resend::new(Arc::clone(&self.policy), service, request, resends))
            }
        };
        ResponseFuture::new(self.inner.call(request), resend)
    }
}
