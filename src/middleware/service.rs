//! The service: decides about a request, then calls the inner service or responds in its place.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::{RefusalText, ResponseBody};
use super::decide::Action;
#[cfg(not(feature = "memory"))]
use super::decide::decide;
use super::future::{HeldRequest, ResponseFuture, ResponseState};
#[cfg(feature = "memory")]
use super::lone::decide_lone as decide;
use super::on_response::OnResponse;
use super::plan::Plan;
use super::read_on::read_on;
use crate::key::Head;

/// Limits the requests to the service `S`; made by [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    plan: Arc<Plan>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, plan: Arc<Plan>) -> Self {
        Self { inner, plan }
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

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        match decide(&self.plan, &Head::new(&request)) {
            // Alone, so that the request is moved once, and little code lies where the layer is used.
            Action::Run(on_response) if !matches!(on_response, OnResponse::Tasks(_)) => {
                let future = self.inner.call(request);
                ResponseFuture::new(ResponseState::Running { future, on_response })
            }
            action => self.act(request, action),
        }
    }
}

impl<S: Clone> RateLimit<S> {
    /// Does what few requests need, or what takes long: see [`Action`].
    #[inline(never)]
    fn act<B: 'static>(
        &mut self,
        mut request: Request<B>,
        action: Action<Response<RefusalText>>,
    ) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        ResponseFuture::new(match action {
            Action::Run(on_response) => {
                on_response.expose(&mut request);
                let future = self.inner.call(request);
                ResponseState::Running { future, on_response }
            }
            Action::Reject(response) => {
                // Drops the service that `poll_ready` readied, and with it what that has reserved:
                // the request does not use it, and no other one may follow. One without a destructor
                // gives nothing back.
                if mem::needs_drop::<S>() {
                    self.inner = self.inner.clone();
                }
                read_on(&self.plan, request);
                ResponseState::Rejected { response: Some(response) }
            }
            Action::Queue(waiting) => ResponseState::queued(waiting, self.hold(request)),
            Action::Pending(pending) => {
                ResponseState::Deciding { pending, held: Some(self.hold(request)) }
            }
        })
    }

    /// Holds a request that runs later, if at all, with the service that was readied for it.
    #[cold]
    #[inline(never)]
    fn hold<B>(&mut self, request: Request<B>) -> Box<HeldRequest<S, B>> {
        // `poll_ready` readied this very service, so the future must own it; the clone left behind
        // will be readied before its own first call.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        Box::new(HeldRequest { service, request, plan: Arc::clone(&self.plan) })
    }
}
