//! The future of a waiter.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::booking::{give_up, later};
use super::line::{Ticket, Told};
use super::lines::{Entrance, Whose};
use super::place::Place;
use crate::clock::Timestamp;
use crate::limiter::RateLimiter;

pin_project! {
    /// Waits for a turn in line, and then for the jitter.
    ///
    /// Dropped before that, the waiter leaves the line.
    #[derive(Debug)]
    pub(crate) struct Waiting {
        spot: Option<Spot>,
        jitter: Duration,
        // Whether it can be sent away.
        patient: bool,
        // Whether the turn comes too late in any case.
        late: bool,
        // None until it is polled, as timers can be made in a runtime only.
        #[pin]
        sleep: Option<Sleep>,
    }
}

/// The limiter is closing, and the turn would come too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAway;

impl Waiting {
    pub(super) fn new(
        limiter: RateLimiter,
        entrance: Arc<Entrance>,
        ticket: Ticket,
        own: Place,
        jitter: Duration,
        patient: bool,
        late: bool,
    ) -> Self {
        let spot = Spot { limiter, entrance, ticket, place: own, went: Went::No };
        Self { spot: Some(spot), jitter, patient, late, sleep: None }
    }
}

impl Future for Waiting {
    type Output = Result<Spot, SentAway>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if *this.late {
            *this.spot = None;
            return Poll::Ready(Err(SentAway));
        }
        loop {
            let Some(spot) = this.spot.as_mut() else { return Poll::Pending };
            if spot.went == Went::No {
                let until = match spot.poll(cx) {
                    Told::Wait(until) => until,
                    Told::SentAway => {
                        *this.spot = None;
                        return Poll::Ready(Err(SentAway));
                    }
                    Told::Go(_) => {
                        if this.jitter.is_zero() {
                            return Poll::Ready(this.spot.take().ok_or(SentAway));
                        }
                        // The jitter is nobody else's wait.
                        spot.pass();
                        let until = later(Instant::now(), *this.jitter);
                        // Nor is it for after the end of all waiting.
                        let end = spot.limiter.lines().end().filter(|_| *this.patient);
                        let until = end.map_or(until, |end| end.min(until));
                        this.sleep.set(Some(sleep_until(until)));
                        continue;
                    }
                };
                match this.sleep.as_mut().as_pin_mut() {
                    Some(sleep) if sleep.deadline() == until => {}
                    Some(sleep) => sleep.reset(until),
                    None => this.sleep.set(Some(sleep_until(until))),
                }
                let Some(sleep) = this.sleep.as_mut().as_pin_mut() else { return Poll::Pending };
                ready!(sleep.poll(cx));
            } else {
                if let Some(sleep) = this.sleep.as_mut().as_pin_mut() {
                    ready!(sleep.poll(cx));
                }
                return Poll::Ready(this.spot.take().ok_or(SentAway));
            }
        }
    }
}

/// A waiter in line, and then its turn.
///
/// Dropped in line, it leaves; dropped after its turn has come but before it was used, it gives its
/// place up.
#[derive(Debug)]
pub(crate) struct Spot {
    limiter: RateLimiter,
    entrance: Arc<Entrance>,
    /// Where it stands in line.
    ticket: Ticket,
    /// The place that it has reserved; once its turn has come, the place that it got.
    place: Place,
    went: Went,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    No,
    /// It is its turn, and those behind wait until it is on its way.
    First,
    /// Those behind were let go.
    Passed,
    /// Its work runs.
    Used,
}

impl Spot {
    fn poll(&mut self, cx: &Context<'_>) -> Told {
        let now = Instant::now();
        let own = self.place;
        let told = self
            .entrance
            .with(|line, wakers| line.poll(self.ticket, &own, cx.waker(), now, wakers));
        if let Told::Go(place) = told {
            self.place = place;
            self.went = Went::First;
        }
        told
    }

    /// Lets those behind go.
    pub(crate) fn pass(&mut self) {
        if self.went == Went::First {
            self.went = Went::Passed;
            let now = Instant::now();
            self.entrance.with(|line, wakers| line.gone(self.ticket, now, wakers));
            self.limiter.lines().tidy(&self.entrance);
        }
    }

    /// The work runs now: nothing is given back when this is dropped.
    pub(crate) fn used(mut self) {
        self.pass();
        self.went = Went::Used;
    }

    /// The instant of its place.
    pub(crate) const fn at(&self) -> Timestamp {
        self.place.order.at()
    }

    pub(crate) fn whose(&self) -> &Whose {
        &self.entrance.whose
    }

    pub(crate) const fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        let whose = &self.entrance.whose;
        match self.went {
            Went::Used => {}
            Went::No => {
                let (own, now) = (self.place, Instant::now());
                let free =
                    self.entrance.with(|line, wakers| line.leave(self.ticket, &own, now, wakers));
                give_up(&self.limiter, whose, Some(&self.entrance), free);
                self.limiter.lines().tidy(&self.entrance);
            }
            Went::First | Went::Passed => {
                // Its instant has come, so nobody else can use it.
                give_up(&self.limiter, whose, None, Some(self.place));
                self.pass();
            }
        }
    }
}
