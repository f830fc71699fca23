//! A request in the queue: it waits for its turn, and then for the inner service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::queue::Seat;
use super::rule::{After, Booked, Rule};
use crate::limiter::{Spot, Waiting};

pin_project! {
    pub(super) struct Queued<S, B> {
        #[pin]
        waiting: Waiting,
        // From its turn until the inner service is called.
        turn: Option<Spot>,
        // None once it is answered.
        held: Option<Held<S, B>>,
    }
}

struct Held<S, B> {
    rule: Arc<Rule>,
    service: S,
    request: Request<B>,
    after: After,
    since: Instant,
    seat: Seat,
}

/// How the wait ended.
pub(super) enum Ended<F> {
    Called(F, After),
    Stopped(Response<Bytes>),
}

impl<S, B> Queued<S, B> {
    /// `service` is not ready: it would hold its place while nothing happens.
    pub(super) fn new(
        rule: Arc<Rule>,
        service: S,
        request: Request<B>,
        after: After,
        booked: Booked,
    ) -> Self {
        let Booked { booking, seat, jitter } = booked;
        let waiting = booking.wait(jitter, true);
        let held = Held { rule, service, request, after, since: Instant::now(), seat };
        Self { waiting, turn: None, held: Some(held) }
    }
}

impl<S, B> Queued<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Ended<S::Future>, S::Error>> {
        let this = self.project();
        if this.turn.is_none() {
            match ready!(this.waiting.poll(cx)) {
                Ok(spot) => *this.turn = Some(spot),
                Err(_sent_away) => {
                    let response = this.held.take().map(|held| held.rule.sent_away());
                    return response.map_or(Poll::Pending, |response| {
                        Poll::Ready(Ok(Ended::Stopped(response)))
                    });
                }
            }
        }
        let (Some(held), Some(turn)) = (this.held.as_mut(), this.turn.as_mut()) else {
            return Poll::Pending;
        };
        match held.service.poll_ready(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                // Those behind ask the inner service after this one has.
                turn.pass();
                return Poll::Pending;
            }
        }
        let (Some(held), Some(turn)) = (this.held.take(), this.turn.take()) else {
            return Poll::Pending;
        };
        let Held { rule, mut service, request, mut after, since, seat } = held;
        after.waited = rule.waited(since.elapsed());
        let future = service.call(request);
        // Only now, so that those behind come after it.
        turn.used();
        drop(seat);
        Poll::Ready(Ok(Ended::Called(future, after)))
    }
}
