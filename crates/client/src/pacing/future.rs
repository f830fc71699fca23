//! The future of a response: waits in line, sends the request, and learns from the answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use super::host::{Place, Turn};

pin_project! {
    /// The future of [`Pace`](super::Pace).
    ///
    /// # Panics
    ///
    /// If it has to wait outside of a tokio runtime, or in a runtime without a timer.
    ///
    /// # Cancel safety
    ///
    /// Dropping it while it waits frees its place in the line. Dropping it after that drops the
    /// future of the inner service; the request still counts as sent.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: PacingState<S, B>,
    }
}

pin_project! {
    #[project = PacingStateProjection]
    enum PacingState<S, B>
    where
        S: Service<Request<B>>,
    {
        // Boxed: most requests are sent at once, and their futures stay small.
        Waiting { call: Option<Box<PacedCall<S, B>>> },
        Sent { #[pin] future: S::Future, turn: Option<Turn> },
    }
}

/// A request that waits for its turn, with the service that it goes to.
pub(super) struct PacedCall<S, B> {
    service: S,
    request: Request<B>,
    deadline: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
    ticket: u64,
    /// `None` once the turn has come.
    place: Option<Place>,
    turn: Option<Turn>,
}

impl<S, B> PacedCall<S, B> {
    pub(super) fn new(service: S, request: Request<B>, place: Place, deadline: Instant) -> Self {
        let (ticket, place) = (place.ticket(), Some(place));
        Self { service, request, deadline, sleep: None, ticket, place, turn: None }
    }

    /// Whether the request returns to its place in the line, since a pause has begun while the
    /// service became ready.
    fn waits_again(&mut self) -> bool
    where
        S: Clone,
    {
        let turn = self.turn.as_ref();
        let place = turn.and_then(|turn| turn.stopped(self.ticket, Instant::now()));
        let waits = place.is_some();
        if waits {
            // The ready one may hold a slot.
            self.service = self.service.clone();
            (self.place, self.turn) = (place, None);
        }
        waits
    }

    /// Waits for the turn.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(place) = &self.place {
            let now = Instant::now();
            match place.turn(cx.waker(), now, self.deadline) {
                Ok(turn) => (self.turn, self.place) = (Some(turn), None),
                Err(until) => {
                    let sleep = match &mut self.sleep {
                        Some(sleep) => {
                            sleep.as_mut().reset(until);
                            sleep
                        }
                        none => none.insert(Box::pin(tokio::time::sleep_until(until))),
                    };
                    ready!(sleep.as_mut().poll(cx));
                }
            }
        }
        Poll::Ready(())
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn sent(future: S::Future, turn: Option<Turn>) -> Self {
        Self { state: PacingState::Sent { future, turn } }
    }

    pub(super) fn waiting(call: PacedCall<S, B>) -> Self {
        Self { state: PacingState::Waiting { call: Some(Box::new(call)) } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<R>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                PacingStateProjection::Sent { future, turn } => {
                    let mut answer = ready!(future.poll(cx));
                    let turn = turn.take();
                    if let (Ok(response), Some(turn)) = (&mut answer, turn) {
                        turn.finish(response);
                    }
                    return Poll::Ready(answer);
                }
                PacingStateProjection::Waiting { call } => {
                    // It is taken in the poll that leaves this state.
                    let Some(waiting) = call.as_mut() else { return Poll::Pending };
                    ready!(waiting.poll_turn(cx));
                    ready!(waiting.service.poll_ready(cx))?;
                    if waiting.waits_again() {
                        continue;
                    }
                    let Some(waiting) = call.take() else { return Poll::Pending };
                    let PacedCall { mut service, request, mut turn, .. } = *waiting;
                    if let Some(turn) = &mut turn {
                        turn.send();
                    }
                    let future = service.call(request);
                    state.set(PacingState::Sent { future, turn });
                }
            }
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            PacingState::Waiting { .. } => "ResponseFuture(waiting)",
            PacingState::Sent { .. } => "ResponseFuture(sent)",
        })
    }
}
