//! The future of a waiter, the same for every store: its timer, its jitter, and its end by a drain or
//! since it has waited for as long as it may.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::queue::{QueueRegistry, Unserved, later};
use super::reserved_slot::{PendingTurn, ReservedSlot};

pin_project! {
    /// Waits for a turn, and then for the jitter.
    ///
    /// Dropping it before it completes cancels the reservation.
    #[derive(Debug)]
    pub(crate) struct Wait {
        stage: WaitStage,
        // In nanoseconds.
        jitter: u64,
        // The registry of the limiter that can drain it, if one can.
        drained_by: Option<Arc<QueueRegistry>>,
        // When it gives up. `None` if its turn comes before that anyway.
        expires: Option<Instant>,
        // None until the first poll: a timer can only be made inside a runtime.
        #[pin]
        sleep: Option<Sleep>,
    }
}

#[derive(Debug)]
enum WaitStage {
    /// Not polled yet.
    Reserved(ReservedSlot),
    Waiting {
        slot: ReservedSlot,
        /// Whether the timer has fired and the queue was asked to grant the waiter.
        has_checked: bool,
    },
    /// It has its turn, and waits for the jitter.
    Jitter(PendingTurn, Box<Jitter>),
    Done,
}

/// The random delay of a turn.
struct Jitter {
    until: Instant,
    /// Completes when the limiter is drained. `None` if that does not concern the waiter.
    drained: Option<DrainedFuture>,
}

type DrainedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

fn drained_by(registry: &Arc<QueueRegistry>) -> DrainedFuture {
    let registry = Arc::clone(registry);
    Box::pin(async move { registry.drained().await })
}

impl Wait {
    /// Waits for the turn of `slot`, and for `jitter` longer. `drained_by` is the registry of the
    /// limiter that can drain it.
    pub(crate) fn new(
        slot: ReservedSlot,
        jitter: Duration,
        drained_by: Option<&Arc<QueueRegistry>>,
    ) -> Self {
        let stage = WaitStage::Reserved(slot);
        // 2^64 nanoseconds are five centuries.
        let jitter = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
        Self { stage, jitter, drained_by: drained_by.cloned(), expires: None, sleep: None }
    }

    /// Gives up at this instant, unless the turn has come by then. It has to be before the instant
    /// that the caller was told.
    pub(crate) const fn expiring(mut self, at: Option<Instant>) -> Self {
        self.expires = at;
        self
    }
}

impl Future for Wait {
    type Output = Result<PendingTurn, Unserved>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let registry = this.drained_by.as_ref();
            let (stage, until) = match mem::replace(this.stage, WaitStage::Done) {
                WaitStage::Reserved(mut slot) => {
                    // A waiter that enters after the drain is in none of the queues that the drain
                    // has visited, so it reads the deadline itself.
                    let turn = slot.enter(registry.is_some());
                    let end = registry.and_then(|registry| registry.drain_instant());
                    if end.is_some_and(|end| end < turn) {
                        return Poll::Ready(Err(Unserved::Drained));
                    }
                    *this.stage = WaitStage::Waiting { slot, has_checked: false };
                    continue;
                }
                WaitStage::Waiting { mut slot, has_checked } => match slot.poll(cx)? {
                    None if *this.jitter == 0 => return Poll::Ready(Ok(PendingTurn(slot))),
                    None => {
                        let jitter = Duration::from_nanos(*this.jitter);
                        let jitter = Jitter::new(jitter, *this.expires, registry);
                        *this.stage = WaitStage::Jitter(PendingTurn(slot), Box::new(jitter));
                        continue;
                    }
                    // Only after the poll, which grants what is due: if the turn comes at this very
                    // instant, the work runs.
                    Some(_) if this.expires.is_some_and(|end| end <= Instant::now()) => {
                        return Poll::Ready(Err(Unserved::Expired));
                    }
                    Some(until) => {
                        let until = this.expires.map_or(until, |end| end.min(until));
                        // The timer has fired, but the store's clock has not reached the instant.
                        // Polling again at once would be a busy loop.
                        let again =
                            Instant::now().checked_add(RECHECK_INTERVAL).filter(|_| has_checked);
                        let until = again.map_or(until, |again| again.max(until));
                        (WaitStage::Waiting { slot, has_checked: false }, until)
                    }
                },
                WaitStage::Jitter(turn, mut jitter) => {
                    let until = jitter.poll(registry, cx);
                    (WaitStage::Jitter(turn, jitter), until)
                }
                // A future that has completed stays pending.
                WaitStage::Done => return Poll::Pending,
            };
            *this.stage = stage;
            match this.sleep.as_mut().as_pin_mut() {
                Some(sleep) if sleep.deadline() == until => {}
                Some(sleep) => sleep.reset(until),
                None => this.sleep.set(Some(sleep_until(until))),
            }
            let Some(sleep) = this.sleep.as_mut().as_pin_mut() else { return Poll::Pending };
            ready!(sleep.poll(cx));
            match mem::replace(this.stage, WaitStage::Done) {
                WaitStage::Jitter(turn, _) => return Poll::Ready(Ok(turn)),
                WaitStage::Waiting { slot, .. } => {
                    // At the instant that it was told, and not when it gives up before that.
                    if this.expires.is_none() {
                        slot.grant();
                    }
                    *this.stage = WaitStage::Waiting { slot, has_checked: true };
                }
                stage => *this.stage = stage,
            }
        }
    }
}

impl Jitter {
    fn new(
        jitter: Duration,
        expires: Option<Instant>,
        registry: Option<&Arc<QueueRegistry>>,
    ) -> Self {
        let drained = registry.map(drained_by);
        let until = later(Instant::now(), jitter);
        Self { until: expires.map_or(until, |end| end.min(until)), drained }
    }

    /// Until when the jitter lasts: not beyond the deadline of a drain.
    fn poll(&mut self, registry: Option<&Arc<QueueRegistry>>, cx: &mut Context<'_>) -> Instant {
        // Registers for the next drain before it reads the deadline. In the other order, a drain in
        // between would be missed.
        while let (Some(registry), Some(drained)) = (registry, &mut self.drained)
            && drained.as_mut().poll(cx).is_ready()
        {
            // The limiter may be drained again with an earlier deadline.
            self.drained = Some(drained_by(registry));
        }
        let end = registry.and_then(|registry| registry.drain_instant());
        end.map_or(self.until, |end| end.min(self.until))
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jitter").field("until", &self.until).finish_non_exhaustive()
    }
}

/// How long a waiter waits before it polls again, if its instant has come and its turn has not.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);
