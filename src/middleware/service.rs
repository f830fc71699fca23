//! The service: decides about a request, then calls the inner service or responds in its place.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::action::RenderedAction;
use super::body::ResponseBody;
use super::decide::decide;
use super::future::ResponseFuture;
#[cfg(feature = "memory")]
use super::lone;
use super::on_response::OnResponse;
#[cfg(feature = "memory")]
use super::plan::DecisionPath;
use super::plan::Plan;
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
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let Self { inner, plan } = self;
        match dispatch(plan, &Head::new(&request)) {
            RenderedAction::Run(on_response @ OnResponse::Tasks(_)) => {
                ResponseFuture::running(inner.call(exposed(request, &on_response)), on_response)
            }
            RenderedAction::Run(on_response) => {
                ResponseFuture::running(inner.call(request), on_response)
            }
            RenderedAction::Queue(slot) => {
                // Drops the service that `poll_ready` readied: it may hold a resource that other
                // requests need while this one waits.
                *inner = inner.clone();
                ResponseFuture::queued(inner.clone(), request, Arc::clone(plan), *slot)
            }
            RenderedAction::Respond(response) => {
                // As above: this request does not use the ready service, and no other request may
                // follow.
                *inner = inner.clone();
                ResponseFuture::rejected(response)
            }
            RenderedAction::Pending(pending) => {
                // `poll_ready` readied this very service, so the future must own it; the clone
                // left behind will be readied before its own first call.
                let clone = inner.clone();
                let ready = mem::replace(inner, clone);
                ResponseFuture::deciding(pending, ready, request, Arc::clone(plan))
            }
        }
    }
}

/// Decides about a request, on the path of its plan.
#[inline]
fn dispatch(plan: &Arc<Plan>, head: &Head<'_>) -> RenderedAction {
    #[cfg(feature = "memory")]
    if let (DecisionPath::Lone, Some(memory)) = (plan.path, plan.limiter.memory()) {
        return lone::decide(plan, memory, head);
    }
    decide(plan, head)
}

/// Adds the `Admission` and the meter to the extensions of the request.
///
/// The request is taken by value, in a function of its own: changing it in place in `call` would
/// add a copy of the request to every call, also if the layer adds nothing.
#[cold]
#[inline(never)]
fn exposed<B>(mut request: Request<B>, on_response: &OnResponse) -> Request<B> {
    on_response.expose(&mut request);
    request
}
