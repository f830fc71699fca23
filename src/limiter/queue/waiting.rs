//! The future of a waiter.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep_until};

use super::booking::Booking;
use super::line::Told;
use super::moment::Moment;
use super::spot::Spot;

pin_project! {
    /// Waits for a turn in line, and then for the jitter.
    ///
    /// Dropped before that, the waiter leaves the line.
    #[derive(Debug)]
    pub(crate) struct Waiting {
        stage: Stage,
        jitter: Duration,
        // Whether it can be sent away.
        patient: bool,
        // None until it is polled, as timers can be made in a runtime only.
        #[pin]
        sleep: Option<Sleep>,
    }
}

#[derive(Debug)]
enum Stage {
    /// Not polled yet, and so not in line.
    Booked(Box<Booking>),
    InLine(Spot),
    /// It has its turn, and wastes the time that makes it later at random.
    Jitter(Spot, Moment),
    Done,
}

/// The limiter is closing, and the turn would come too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAway;

impl Waiting {
    pub(super) fn new(booking: Booking, jitter: Duration, patient: bool) -> Self {
        Self { stage: Stage::Booked(Box::new(booking)), jitter, patient, sleep: None }
    }

    /// What is done is not asked for again: `Done` is left behind by whoever returns an answer.
    fn ends(stage: &mut Stage) -> Poll<Result<Spot, SentAway>> {
        match std::mem::replace(stage, Stage::Done) {
            Stage::InLine(spot) | Stage::Jitter(spot, _) => Poll::Ready(Ok(spot)),
            Stage::Booked(_) | Stage::Done => Poll::Pending,
        }
    }
}

impl Future for Waiting {
    type Output = Result<Spot, SentAway>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let (until, epoch) = match this.stage {
                Stage::Done => return Poll::Pending,
                Stage::Booked(_) => {
                    let Stage::Booked(booking) = std::mem::replace(this.stage, Stage::Done) else {
                        return Poll::Pending;
                    };
                    match Spot::enter(*booking, *this.patient) {
                        Some(spot) => *this.stage = Stage::InLine(spot),
                        None => return Poll::Ready(Err(SentAway)),
                    }
                    continue;
                }
                Stage::InLine(spot) => match spot.poll(cx) {
                    Told::Wait(until) => (until, spot.entrance().epoch()),
                    Told::Go if this.jitter.is_zero() => return Self::ends(this.stage),
                    Told::Go => {
                        // The jitter is nobody else's wait.
                        spot.pass();
                        let until = spot.entrance().now().plus(*this.jitter);
                        let Stage::InLine(spot) = std::mem::replace(this.stage, Stage::Done) else {
                            return Poll::Pending;
                        };
                        *this.stage = Stage::Jitter(spot, until);
                        continue;
                    }
                    Told::SentAway => {
                        *this.stage = Stage::Done;
                        return Poll::Ready(Err(SentAway));
                    }
                },
                Stage::Jitter(spot, until) => {
                    // Nor is it for after the end of all waiting, which wakes whoever lingers.
                    if *this.patient {
                        spot.linger(cx);
                        *until = spot.end().map_or(*until, |end| end.min(*until));
                    }
                    (*until, spot.entrance().epoch())
                }
            };
            let until = epoch.instant(until);
            match this.sleep.as_mut().as_pin_mut() {
                Some(sleep) if sleep.deadline() == until => {}
                Some(sleep) => sleep.reset(until),
                None => this.sleep.set(Some(sleep_until(until))),
            }
            let Some(sleep) = this.sleep.as_mut().as_pin_mut() else { return Poll::Pending };
            ready!(sleep.poll(cx));
            if matches!(this.stage, Stage::Jitter(..)) {
                return Self::ends(this.stage);
            }
        }
    }
}
