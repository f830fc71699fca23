//! The future of a response: deciding, queued, running, or rejected.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use scopeguard::{ScopeGuard, guard};
use tower_service::Service;

use super::body::{RefusalText, ResponseBody};
use super::decide::{Action, PendingAction};
use super::on_response::OnResponse;
use super::plan::Plan;
use super::queued_call::{PendingTurn, QueuedRequest};
use super::read_on::read_on;
use super::reject::{Rejection, render};
use crate::key::Head;

pin_project! {
    /// The future of [`RateLimit`](super::RateLimit).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the request, or the future of the inner service. A request that waits in
    /// the [queue](crate::RateLimitLayer::queue), or for an answer about its slot, gives up the
    /// slot. If the inner service runs already, the request is settled at the count of its
    /// [`Meter`](super::Meter), if its handler took that, or costs nothing if the layer [refunds
    /// dropped requests](crate::RateLimitLayer::refund_dropped). Otherwise, its tokens stay taken. A
    /// limit that counts requests [in flight](crate::Quota::in_flight) gets its tokens back always.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: ResponseState<S, B>,
    }
}

pin_project! {
    #[project = ResponseStateProjection]
    pub(super) enum ResponseState<S, B>
    where
        S: Service<Request<B>>,
    {
        Rejected { response: Option<Response<RefusalText>> },
        // Boxed: most requests are decided at once, and their futures stay small.
        Deciding { pending: PendingAction, held: Option<Box<HeldRequest<S, B>>> },
        Queued { waiting: PendingTurn, held: Option<Box<HeldRequest<S, B>>> },
        // Its turn has come; the inner service is not called yet.
        Turn { turn: Option<(Box<QueuedRequest>, Box<HeldRequest<S, B>>)> },
        Running { #[pin] future: S::Future, on_response: OnResponse },
    }
}

/// A request that waits for the answer of the store, with the service that was made ready for it; or
/// for its turn, with a clone that is not ready.
pub(super) struct HeldRequest<S, B> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) plan: Arc<Plan>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn new(state: ResponseState<S, B>) -> Self {
        Self { state }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: 'static,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            if let ResponseStateProjection::Running { future, on_response } =
                state.as_mut().project()
            {
                // Armed around the inner service alone. A panic in this layer is none of the
                // service. A layer outside may catch the panic and drop this future later, which
                // would otherwise look like a client that disconnected.
                let on_response = guard(on_response, OnResponse::fail);
                let polled = future.poll(cx);
                let on_response = ScopeGuard::into_inner(on_response);
                return Poll::Ready(match ready!(polled) {
                    Ok(mut response) => {
                        let end = on_response.finish(&mut response);
                        Ok(response.map(|body| ResponseBody::inner(body, end)))
                    }
                    Err(error) => {
                        on_response.fail();
                        Err(error)
                    }
                });
            }
            if let Some(response) = ready!(state.as_mut().poll_decision(cx))? {
                return Poll::Ready(Ok(response.map(ResponseBody::refusal)));
            }
        }
    }
}

impl<S, B> ResponseState<S, B>
where
    S: Service<Request<B>> + Clone,
    B: 'static,
{
    /// Polls the decision. Returns the response to a request that is rejected, and `None` once the
    /// inner service runs.
    // Not inlined: requests that run at once do not get here.
    #[inline(never)]
    fn poll_decision(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Response<RefusalText>>, S::Error>> {
        loop {
            let next = match self.as_mut().project() {
                ResponseStateProjection::Running { .. } => return Poll::Ready(Ok(None)),
                // A future that has returned its output is not polled again.
                ResponseStateProjection::Rejected { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok(Some(response))),
                    None => return Poll::Pending,
                },
                ResponseStateProjection::Deciding { pending, held } => {
                    let action = ready!(pending.as_mut().poll(cx));
                    let Some(mut held) = held.take() else { return Poll::Pending };
                    match action {
                        Action::Run(on_response) => {
                            on_response.expose(&mut held.request);
                            let HeldRequest { mut service, request, .. } = *held;
                            let future = service.call(request);
                            Self::Running { future, on_response }
                        }
                        Action::Queue(waiting) => Self::queued(waiting, held),
                        Action::Reject(rejection) => Self::rejected(*held, &rejection),
                        Action::Pending(pending) => Self::Deciding { pending, held: Some(held) },
                    }
                }
                ResponseStateProjection::Queued { waiting, held } => {
                    let left = ready!(waiting.as_mut().poll(cx));
                    let Some(held) = held.take() else { return Poll::Pending };
                    match left {
                        Ok(turn) => Self::Turn { turn: Some((turn, held)) },
                        Err(rejection) => Self::rejected(*held, &rejection),
                    }
                }
                ResponseStateProjection::Turn { turn } => {
                    let Some((_, held)) = turn.as_mut() else { return Poll::Pending };
                    // Only after the turn: a service that was ready before would hold its resource
                    // during the wait. Meanwhile the turn is kept, which delays no other waiter.
                    let ready = ready!(held.service.poll_ready(cx));
                    // Dropped after an error, it frees the slot and the room in the queue for others.
                    let Some((turn, held)) = turn.take() else { return Poll::Pending };
                    if let Err(error) = ready {
                        return Poll::Ready(Err(error));
                    }
                    let HeldRequest { service, request, plan } = *held;
                    let (future, on_response) = turn.call(&plan, service, request);
                    Self::Running { future, on_response }
                }
            };
            self.set(next);
        }
    }
}

impl<S, B> ResponseState<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn queued(waiting: PendingTurn, mut held: Box<HeldRequest<S, B>>) -> Self
    where
        S: Clone,
    {
        // The ready service may hold a resource that other requests need while this one waits.
        held.service = held.service.clone();
        Self::Queued { waiting, held: Some(held) }
    }

    fn rejected(held: HeldRequest<S, B>, rejection: &Rejection<'_>) -> Self
    where
        B: 'static,
    {
        // The service is dropped with this scope, also if this future is kept for long after its
        // response.
        let HeldRequest { request, plan, .. } = held;
        let response = render(&plan, rejection, &Head::new(&request));
        read_on(&plan, request);
        Self::Rejected { response: Some(response) }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            ResponseState::Rejected { .. } => "ResponseFuture(rejected)",
            ResponseState::Deciding { .. } => "ResponseFuture(deciding)",
            ResponseState::Queued { .. } | ResponseState::Turn { .. } => "ResponseFuture(queued)",
            ResponseState::Running { .. } => "ResponseFuture(running)",
        })
    }
}
