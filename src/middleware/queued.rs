//! A request in the queue: it waits for its turn, and then for the inner service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::after::After;
use super::queue::Seat;
use super::reserve::Booked;
use super::tab::Tab;
use super::tell;
use crate::fields;
use crate::key::Head;
use crate::limiter::{Spot, Waiting};

pin_project! {
    // The wait is kept in the room of the response's future, where the inner service's future will be.
    pub(super) struct Queued<S, B> {
        #[pin]
        stage: Stage,
        // None once it is answered.
        held: Option<Box<Held<S, B>>>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage {
        Waiting { #[pin] waiting: Waiting },
        // From its turn until the inner service is called.
        Turn { spot: Option<Spot> },
    }
}

struct Held<S, B> {
    service: S,
    request: Request<B>,
    since: Instant,
    seat: Seat,
    tab: Option<Arc<Tab>>,
}

/// How the wait ended.
pub(super) enum Ended<F> {
    Called(F, After),
    Stopped(Response<Bytes>),
}

impl<S, B> Queued<S, B> {
    /// `service` is not ready: it would hold its place while nothing happens.
    pub(super) fn new(service: S, request: Request<B>, booked: Booked) -> Self {
        let Booked { booking, seat, jitter, tab } = booked;
        let waiting = booking.wait(jitter, true);
        let held = Held { service, request, since: Instant::now(), seat, tab };
        Self { stage: Stage::Waiting { waiting }, held: Some(Box::new(held)) }
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
        let mut this = self.project();
        loop {
            let turn = match this.stage.as_mut().project() {
                StageProjection::Waiting { waiting } => match ready!(waiting.poll(cx)) {
                    Ok(spot) => {
                        this.stage.set(Stage::Turn { spot: Some(spot) });
                        continue;
                    }
                    Err(_sent_away) => {
                        let Some(held) = this.held.take() else { return Poll::Pending };
                        let head = Head::new(&held.request);
                        let response = held.seat.rules().sent_away(&head);
                        return Poll::Ready(Ok(Ended::Stopped(response)));
                    }
                },
                StageProjection::Turn { spot } => spot,
            };
            let (Some(held), Some(spot)) = (this.held.as_mut(), turn.as_mut()) else {
                return Poll::Pending;
            };
            match held.service.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    // Neither the place nor the seat is needed any more.
                    drop((turn.take(), this.held.take()));
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    // Those behind ask the inner service after this one has.
                    spot.pass();
                    return Poll::Pending;
                }
            }
            let (Some(held), Some(spot)) = (this.held.take(), turn.take()) else {
                return Poll::Pending;
            };
            let Held { mut service, mut request, since, seat, tab } = *held;
            if let Some(tab) = &tab {
                tab.expose(&mut request);
            }
            let waited = since.elapsed();
            let future = service.call(request);
            // Only now, so that those behind come after it.
            let used = spot.used();
            let rules = seat.rules();
            let timing = fields::server_timing(rules.limit(), waited);
            let told = used.filter(|_| rules.tells());
            let told = told.map(|used| tell::told_after(rules, &used));
            return Poll::Ready(Ok(Ended::Called(future, After::new(told, timing, tab))));
        }
    }
}
