//! The future of a request that stands in line.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::slot::LineSlot;
use crate::backend::WaiterStatus;
use crate::clock::Timestamp;
use crate::limiter::queue::{Drained, QueueRegistry};

pin_project! {
    /// Waits in line, and then for the jitter.
    ///
    /// Dropped before that, the request leaves the line.
    #[derive(Debug)]
    pub(crate) struct LineWait {
        stage: WaitStage,
        jitter: Duration,
        // By which it can be sent away, if it can be.
        drained_by: Option<Arc<QueueRegistry>>,
        // None until it is polled, as timers can be made in a runtime only.
        #[pin]
        sleep: Option<Sleep>,
    }
}

#[derive(Debug)]
enum WaitStage {
    InLine(LineSlot),
    /// It has its turn, and lets the jitter pass.
    Jitter(LineTurn, Box<Jitter>),
    Done,
}

/// A turn that has come: its work may run.
///
/// Dropped before it does, its tokens are given back.
#[derive(Debug)]
pub(crate) struct LineTurn {
    pub(crate) slot: LineSlot,
    pub(crate) at: Timestamp,
}

/// The time by which a turn is made later at random.
struct Jitter {
    until: Instant,
    /// Completes when all waiting comes to an end, if that concerns it.
    drained: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl LineWait {
    /// Waits in line, and for `jitter` longer. The limiter whose registry it names can send it away.
    pub(crate) const fn new(
        slot: LineSlot,
        jitter: Duration,
        drained_by: Option<Arc<QueueRegistry>>,
    ) -> Self {
        Self { stage: WaitStage::InLine(slot), jitter, drained_by, sleep: None }
    }
}

impl Future for LineWait {
    type Output = Result<LineTurn, Drained>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let registry = this.drained_by.as_ref();
            let until = match mem::replace(this.stage, WaitStage::Done) {
                WaitStage::InLine(slot) => match slot.poll(cx.waker()) {
                    WaiterStatus::Granted(at) if this.jitter.is_zero() => {
                        return Poll::Ready(Ok(LineTurn { slot, at }));
                    }
                    WaiterStatus::Granted(at) => {
                        let jitter = Jitter::new(*this.jitter, registry);
                        *this.stage = WaitStage::Jitter(LineTurn { slot, at }, Box::new(jitter));
                        continue;
                    }
                    WaiterStatus::Waiting => {
                        let until = slot.deadline();
                        // A drain may have overlooked it if it entered at that time.
                        let end = registry.and_then(|registry| registry.end_instant());
                        if this.sleep.is_none() && end.is_some_and(|end| end < slot.turn()) {
                            return Poll::Ready(Err(Drained));
                        }
                        *this.stage = WaitStage::InLine(slot);
                        until
                    }
                    WaiterStatus::Drained => return Poll::Ready(Err(Drained)),
                },
                WaitStage::Jitter(turn, mut jitter) => {
                    let until = jitter.poll(registry, cx);
                    *this.stage = WaitStage::Jitter(turn, jitter);
                    until
                }
                WaitStage::Done => return Poll::Pending,
            };
            match this.sleep.as_mut().as_pin_mut() {
                Some(sleep) if sleep.deadline() == until => {}
                Some(sleep) => sleep.reset(until),
                None => this.sleep.set(Some(sleep_until(until))),
            }
            let Some(sleep) = this.sleep.as_mut().as_pin_mut() else { return Poll::Pending };
            ready!(sleep.poll(cx));
            match mem::replace(this.stage, WaitStage::Done) {
                WaitStage::InLine(slot) => {
                    slot.grant();
                    *this.stage = WaitStage::InLine(slot);
                }
                WaitStage::Jitter(turn, _) => return Poll::Ready(Ok(turn)),
                WaitStage::Done => return Poll::Pending,
            }
        }
    }
}

impl Jitter {
    fn new(jitter: Duration, registry: Option<&Arc<QueueRegistry>>) -> Self {
        let now = Instant::now();
        let drained = registry.map(|registry| {
            let registry = Arc::clone(registry);
            let drained: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async move { registry.drained().await });
            drained
        });
        Self { until: now.checked_add(jitter).unwrap_or(now), drained }
    }

    /// Until when it lasts: no longer than all waiting.
    fn poll(&mut self, registry: Option<&Arc<QueueRegistry>>, cx: &mut Context<'_>) -> Instant {
        // Before the end is read, so that an end that is set then is heard of.
        if let Some(drained) = &mut self.drained
            && drained.as_mut().poll(cx).is_ready()
        {
            self.drained = None;
        }
        let end = registry.and_then(|registry| registry.end_instant());
        end.map_or(self.until, |end| end.min(self.until))
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jitter").field("until", &self.until).finish_non_exhaustive()
    }
}
