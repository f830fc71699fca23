//! The future of a response: asking, queued, running, or answered already.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::ResponseBody;
use super::after::After;
use super::queued::{Ended, Queued};
use super::reserve::Booked;
use super::rules::{Later, Ruling};
use crate::key::Head;

pin_project! {
    /// The future of [`RateLimit`](super::RateLimit).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the request, or the future of the inner service. A request that waits in the
    /// [queue](super::RateLimitLayer::queue) gives up its place, and so does one whose store has
    /// yet to answer. Other tokens that were taken stay taken.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        Stopped { response: Option<Response<Bytes>> },
        // Boxed, so that stores which answer at once do not pay for the room.
        Asking { asking: Later, held: Option<Box<Held<S, B>>> },
        Queued { #[pin] queued: Queued<S, B> },
        Running { #[pin] future: S::Future, after: After },
    }
}

/// What waits for the store's answer: the service that was made ready, and its request.
struct Held<S, B> {
    service: S,
    request: Request<B>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn stopped(response: Response<Bytes>) -> Self {
        Self { state: State::Stopped { response: Some(response) } }
    }

    pub(super) const fn running(future: S::Future, after: After) -> Self {
        Self { state: State::Running { future, after } }
    }

    pub(super) fn queued(service: S, request: Request<B>, booked: Booked) -> Self {
        Self { state: State::Queued { queued: Queued::new(service, request, booked) } }
    }

    pub(super) fn asking(asking: Later, service: S, request: Request<B>) -> Self {
        let held = Some(Box::new(Held { service, request }));
        Self { state: State::Asking { asking, held } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Stopped { response } => {
                    // A future that has given its answer is not polled again.
                    let Some(response) = response.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(response.map(ResponseBody::refusal)));
                }
                StateProjection::Asking { asking, held } => {
                    let ruling = ready!(asking.as_mut().poll(cx));
                    let Some(held) = held.take() else { return Poll::Pending };
                    let Held { mut service, mut request } = *held;
                    match ruling {
                        Ruling::Run(after) => {
                            after.expose(&mut request);
                            let future = service.call(request);
                            State::Running { future, after }
                        }
                        Ruling::Wait(booked) => {
                            // Not the one that was made ready: see `RateLimit::call`.
                            let queued = Queued::new(service.clone(), request, *booked);
                            State::Queued { queued }
                        }
                        Ruling::Stop(response) => State::Stopped { response: Some(response) },
                        Ruling::Untold(say) => {
                            State::Stopped { response: Some(say(&Head::new(&request))) }
                        }
                    }
                }
                StateProjection::Queued { queued } => match ready!(queued.poll(cx))? {
                    Ended::Called(future, after) => State::Running { future, after },
                    Ended::Stopped(response) => State::Stopped { response: Some(response) },
                },
                StateProjection::Running { future, after } => {
                    let mut response = ready!(future.poll(cx))?;
                    std::mem::take(after).finish(&mut response);
                    return Poll::Ready(Ok(response.map(ResponseBody::inner)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Stopped { .. } => "ResponseFuture(stopped)",
            State::Asking { .. } => "ResponseFuture(asking)",
            State::Queued { .. } => "ResponseFuture(queued)",
            State::Running { .. } => "ResponseFuture(running)",
        })
    }
}
