//! The future of a waiter.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep_until};

use super::granting::WaiterAnswer;
use super::held_slot::HeldSlot;
use super::waiter_handle::WaiterHandle;

pin_project! {
    /// Waits for a turn in the queue, and then for the jitter.
    ///
    /// Dropped before that, the waiter leaves the queue.
    #[derive(Debug)]
    pub(crate) struct QueueWait {
        stage: WaitStage,
        // In nanoseconds.
        jitter: u64,
        // Whether it can be sent away.
        drainable: bool,
        // None until it is polled, as timers can be made in a runtime only.
        #[pin]
        sleep: Option<Sleep>,
    }
}

#[derive(Debug)]
enum WaitStage {
    /// Not polled yet, and so not in the queue.
    Booked(Box<HeldSlot>),
    InLine(WaiterHandle),
    /// It has its turn, and wastes the time that makes it later at random, for which the timer is
    /// set.
    Jitter(WaiterHandle),
    Done,
}

/// The limiter is closing, and the turn would come too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained;

impl QueueWait {
    /// Waits in the queue, and for at most `jitter` longer. A `drainable` waiter can be sent away.
    pub(crate) fn new(booking: HeldSlot, jitter: Duration, drainable: bool) -> Self {
        // Five centuries of jitter are as good as more.
        let jitter = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
        Self { stage: WaitStage::Booked(Box::new(booking)), jitter, drainable, sleep: None }
    }

    /// A future that has given its answer is not polled again: it leaves `Done` behind.
    fn ends(stage: &mut WaitStage) -> Poll<Result<WaiterHandle, Drained>> {
        match mem::replace(stage, WaitStage::Done) {
            WaitStage::InLine(spot) | WaitStage::Jitter(spot) => Poll::Ready(Ok(spot)),
            WaitStage::Booked(_) | WaitStage::Done => Poll::Pending,
        }
    }
}

impl Future for QueueWait {
    type Output = Result<WaiterHandle, Drained>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let until = match this.stage {
                WaitStage::Done => return Poll::Pending,
                WaitStage::Booked(_) => {
                    let WaitStage::Booked(booking) = mem::replace(this.stage, WaitStage::Done)
                    else {
                        return Poll::Pending;
                    };
                    match WaiterHandle::enter(*booking, *this.drainable) {
                        Some(spot) => *this.stage = WaitStage::InLine(spot),
                        None => return Poll::Ready(Err(Drained)),
                    }
                    continue;
                }
                WaitStage::InLine(spot) => match spot.poll(cx) {
                    WaiterAnswer::Wait(until) => spot.queue().epoch().instant(until),
                    WaiterAnswer::Go if *this.jitter == 0 => return Self::ends(this.stage),
                    WaiterAnswer::Go => {
                        let jitter = Duration::from_nanos(*this.jitter);
                        let until = spot.queue().now().plus(jitter);
                        let until = sleep_until(spot.queue().epoch().instant(until));
                        this.sleep.set(Some(until));
                        if let WaitStage::InLine(spot) = mem::replace(this.stage, WaitStage::Done) {
                            *this.stage = WaitStage::Jitter(spot);
                        }
                        continue;
                    }
                    WaiterAnswer::Drained => {
                        *this.stage = WaitStage::Done;
                        return Poll::Ready(Err(Drained));
                    }
                },
                WaitStage::Jitter(spot) => {
                    let Some(sleep) = this.sleep.as_ref().as_pin_ref() else {
                        return Self::ends(this.stage);
                    };
                    let until = sleep.deadline();
                    // Nor does the jitter outlast the end of all waiting, which wakes this waiter.
                    if *this.drainable {
                        spot.poll(cx);
                    }
                    let end = spot.end().filter(|_| *this.drainable);
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
            if matches!(this.stage, WaitStage::Jitter(..)) {
                return Self::ends(this.stage);
            }
        }
    }
}
