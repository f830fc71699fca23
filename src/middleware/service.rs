//! The service: asks the limiter, then calls the inner service or answers for it.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::rules::{Asked, Rules, Ruling};
use super::{ResponseBody, ResponseFuture};
use crate::key::Head;

/// Holds the requests to `S` to a limit; made by [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, rules: Arc<Rules>) -> Self {
        Self { inner, rules }
    }

    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, to be changed.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Gives the inner service back.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        match self.rules.ask(&Head::new(&request)) {
            Asked::Ruled(Ruling::Run(after)) => {
                ResponseFuture::running(self.inner.call(request), after)
            }
            Asked::Ruled(Ruling::Wait(booked)) => {
                // What `poll_ready` readied is let go: it may hold something that others need
                // while this request waits.
                self.inner = self.inner.clone();
                ResponseFuture::queued(self.inner.clone(), request, *booked)
            }
            Asked::Ruled(Ruling::Stop(response)) => ResponseFuture::stopped(response),
            Asked::Ruled(Ruling::Untold(say)) => ResponseFuture::stopped(say(&Head::new(&request))),
            Asked::Later(ruling) => {
                // `poll_ready` readied this very service, so the future must own it; the clone
                // left behind will be readied before its own first call.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::asking(ruling, ready, request)
            }
        }
    }
}
