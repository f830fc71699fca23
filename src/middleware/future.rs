//! The future of a response: deciding, queued, running, or rejected.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::action::{Action, PendingAction, QueuedSlot};
use super::body::{RefusalText, ResponseBody};
use super::on_response::OnResponse;
use super::plan::Plan;
use super::queued_call::{QueueExit, QueuedCall};
use super::read_on::read_on;
use super::reject::render;
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
    enum ResponseState<S, B>
    where
        S: Service<Request<B>>,
    {
        Rejected { response: Option<Response<RefusalText>> },
        // Both are boxed: most requests are decided at once, and their futures stay small.
        Deciding { pending: PendingAction, held: Option<Box<HeldRequest<S, B>>> },
        Queued { queued: Pin<Box<QueuedCall<S, B>>> },
        Running { #[pin] future: S::Future, on_response: OnResponse },
    }
}

/// A request that waits for the answer of the store, with the service that was made ready for it.
struct HeldRequest<S, B> {
    service: S,
    request: Request<B>,
    plan: Arc<Plan>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn rejected(response: Response<RefusalText>) -> Self {
        Self { state: ResponseState::Rejected { response: Some(response) } }
    }

    pub(super) const fn running(future: S::Future, on_response: OnResponse) -> Self {
        Self { state: ResponseState::Running { future, on_response } }
    }

    pub(super) fn queued(
        service: S,
        request: Request<B>,
        plan: Arc<Plan>,
        slot: QueuedSlot,
    ) -> Self {
        Self {
            state: ResponseState::Queued { queued: QueuedCall::new(service, request, plan, slot) },
        }
    }

    pub(super) fn deciding(
        pending: PendingAction,
        service: S,
        request: Request<B>,
        plan: Arc<Plan>,
    ) -> Self {
        let held = Some(Box::new(HeldRequest { service, request, plan }));
        Self { state: ResponseState::Deciding { pending, held } }
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
                // service.
                let panics = FailOnPanic(&mut *on_response);
                let polled = future.poll(cx);
                // Only a panic of `poll` gets past this line, and runs the destructor.
                mem::forget(panics);
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
                    let Some(held) = held.take() else { return Poll::Pending };
                    let HeldRequest { mut service, mut request, plan } = *held;
                    match action {
                        Action::Run(on_response) => {
                            on_response.expose(&mut request);
                            let future = service.call(request);
                            Self::Running { future, on_response }
                        }
                        Action::Queue(slot) => {
                            // A clone, which is not ready: see `RateLimit::call`.
                            let queued = QueuedCall::new(service.clone(), request, plan, *slot);
                            Self::Queued { queued }
                        }
                        Action::Reject(rejection) => {
                            // The ready service is dropped with this scope, also if this future is
                            // kept for long after its response.
                            let response = render(&plan, &rejection, &Head::new(&request));
                            read_on(&plan, request);
                            Self::Rejected { response: Some(response) }
                        }
                    }
                }
                ResponseStateProjection::Queued { queued } => {
                    match ready!(queued.as_mut().poll(cx))? {
                        QueueExit::Called(future, on_response) => {
                            Self::Running { future, on_response }
                        }
                        QueueExit::Rejected(response) => {
                            Self::Rejected { response: Some(response) }
                        }
                    }
                }
            };
            self.set(next);
        }
    }
}

/// Treats a panic of the service as a failure. A layer outside may catch the panic and drop the
/// future later, which would otherwise look like a client that disconnected.
struct FailOnPanic<'r>(&'r mut OnResponse);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail();
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
            ResponseState::Queued { .. } => "ResponseFuture(queued)",
            ResponseState::Running { .. } => "ResponseFuture(running)",
        })
    }
}
