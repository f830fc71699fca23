//! The future of a waiter.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep_until};

use super::booking::Booking;
use super::spot::Spot;
use super::turns::Told;

pin_project! {
    /// Waits for a turn in line, and then for the jitter.
    ///
    /// Dropped before that, the waiter leaves the line.
    #[derive(Debug)]
    pub(crate) struct Waiting {
        stage: Stage,
        // In nanoseconds.
        jitter: u64,
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
    /// It has its turn, and wastes the time that makes it later at random, for which the timer is set.
    Jitter(Spot),
    Done,
}

/// The limiter is closing, and the turn would come too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAway;

impl Waiting {
    /// Waits in line, and for at most `jitter` longer. A `patient` waiter can be sent away.
    pub(crate) fn new(booking: Booking, jitter: Duration, patient: bool) -> Self {
        // Five centuries of jitter are as good as more.
        let jitter = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
        Self { stage: Stage::Booked(Box::new(booking)), jitter, patient, sleep: None }
    }

    /// What is done is not asked for again: `Done` is left behind by whoever returns an answer.
    fn ends(stage: &mut Stage) -> Poll<Result<Spot, SentAway>> {
        match mem::replace(stage, Stage::Done) {
            Stage::InLine(spot) | Stage::Jitter(spot) => Poll::Ready(Ok(spot)),
            Stage::Booked(_) | Stage::Done => Poll::Pending,
        }
    }
}

impl Future for Waiting {
    type Output = Result<Spot, SentAway>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let until = match this.stage {
                Stage::Done => return Poll::Pending,
                Stage::Booked(_) => {
                    let Stage::Booked(booking) = mem::replace(this.stage, Stage::Done) else {
                        return Poll::Pending;
                    };
                    match Spot::enter(*booking, *this.patient) {
                        Some(spot) => *this.stage = Stage::InLine(spot),
                        None => return Poll::Ready(Err(SentAway)),
                    }
                    continue;
                }
                Stage::InLine(spot) => match spot.poll(cx) {
                    Told::Wait(until) => spot.queue().epoch().instant(until),
                    Told::Go if *this.jitter == 0 => return Self::ends(this.stage),
                    Told::Go => {
                        // The jitter is nobody else's wait.
                        spot.pass();
                        let jitter = Duration::from_nanos(*this.jitter);
                        let until = spot.queue().now().plus(jitter);
                        let until = sleep_until(spot.queue().epoch().instant(until));
                        this.sleep.set(Some(until));
                        if let Stage::InLine(spot) = mem::replace(this.stage, Stage::Done) {
                            *this.stage = Stage::Jitter(spot);
                        }
                        continue;
                    }
                    Told::SentAway => {
                        *this.stage = Stage::Done;
                        return Poll::Ready(Err(SentAway));
                    }
                },
                Stage::Jitter(spot) => {
                    let Some(sleep) = this.sleep.as_ref().as_pin_ref() else {
                        return Self::ends(this.stage);
                    };
                    let until = sleep.deadline();
                    // Nor is it for after the end of all waiting, which wakes whoever lingers.
                    if *this.patient {
                        spot.linger(cx);
                    }
                    let end = spot.end().filter(|_| *this.patient);
                    end.map_or(until, |end| spot.queue().epoch().instant(end).min(until))
                }
            };
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
