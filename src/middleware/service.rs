//! The service: asks the limiter, then calls the inner service or answers for it.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use tower_service::Service;

use super::after::After;
use super::rule::{Asked, Rule, Ruling};
use super::{ResponseBody, ResponseFuture};
use crate::backend::Answer;
use crate::key::Head;

/// Holds the requests to `S` to a limit; made by [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    rule: Arc<Rule>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, rule: Arc<Rule>) -> Self {
        Self { inner, rule }
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
        let rule = &self.rule;
        match rule.ask(&Head::of(&request)) {
            Asked::Exempt => ResponseFuture::running(self.inner.call(request), After::default()),
            Asked::Stop(response) => ResponseFuture::stopped(response),
            Asked::Answer(Answer::Now(answer)) => match rule.rule(answer) {
                Ruling::Run(after) => ResponseFuture::running(self.inner.call(request), after),
                Ruling::Wait(booked) => {
                    // What `poll_ready` readied is let go: it may hold something that others need
                    // while this request waits.
                    self.inner = self.inner.clone();
                    let service = self.inner.clone();
                    ResponseFuture::queued(service, request, *booked)
                }
                Ruling::Stop(response) => ResponseFuture::stopped(response),
            },
            Asked::Answer(Answer::Later(answer)) => {
                // `poll_ready` readied this very service, so the future must own it; the clone
                // left behind will be readied before its own first call.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::asking(answer, Arc::clone(rule), ready, request)
            }
        }
    }
}
