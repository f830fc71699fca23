//! Waiting for a turn, whatever the store.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::queue::{Drained, QueueRegistry};
use super::reserved_slot::{EntryPoll, PendingTurn, QueueEntry, ReservedSlot};

pin_project! {
    /// Waits for a turn, and then for the jitter.
    ///
    /// Dropped before that, the reservation is cancelled.
    #[derive(Debug)]
    pub(crate) struct Wait {
        stage: WaitStage,
        // In nanoseconds.
        jitter: u64,
        // By which it can be sent away, if it can be.
        drained_by: Option<Arc<QueueRegistry>>,
        // None until it is polled, as timers can be made in a runtime only.
        #[pin]
        sleep: Option<Sleep>,
    }
}

#[derive(Debug)]
enum WaitStage {
    /// Not polled yet.
    Reserved(ReservedSlot),
    Waiting {
        entry: QueueEntry,
        /// Whether its instant has come, and it has looked by itself.
        has_checked: bool,
    },
    /// It has its turn, and lets the jitter pass.
    Jitter(PendingTurn, Box<Jitter>),
    Done,
}

/// The time by which a turn is made later at random.
struct Jitter {
    until: Instant,
    /// Completes when all waiting comes to an end, if that concerns it.
    drained: Option<DrainedFuture>,
}

type DrainedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

fn drained_by(registry: &Arc<QueueRegistry>) -> DrainedFuture {
    let registry = Arc::clone(registry);
    Box::pin(async move { registry.drained().await })
}

impl Wait {
    /// Waits for what was booked, and for `jitter` longer. The limiter whose registry is named can
    /// send it away.
    pub(crate) fn new(
        slot: ReservedSlot,
        jitter: Duration,
        drained_by: Option<&Arc<QueueRegistry>>,
    ) -> Self {
        let stage = WaitStage::Reserved(slot);
        // Five centuries of jitter are as good as more.
        let jitter = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
        Self { stage, jitter, drained_by: drained_by.cloned(), sleep: None }
    }
}

impl Future for Wait {
    type Output = Result<PendingTurn, Drained>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let registry = this.drained_by.as_ref();
            let (stage, until) = match mem::replace(this.stage, WaitStage::Done) {
                WaitStage::Reserved(slot) => {
                    // One that enters while its limiter is drained looks at the end itself.
                    let entry = slot.enter(registry.is_some());
                    let end = registry.and_then(|registry| registry.drain_instant());
                    if end.is_some_and(|end| end < entry.turn()) {
                        return Poll::Ready(Err(Drained));
                    }
                    *this.stage = WaitStage::Waiting { entry, has_checked: false };
                    continue;
                }
                WaitStage::Waiting { entry, has_checked } => match entry.poll(cx) {
                    EntryPoll::Granted(turn) if *this.jitter == 0 => {
                        return Poll::Ready(Ok(turn));
                    }
                    EntryPoll::Granted(turn) => {
                        let jitter =
                            Box::new(Jitter::new(Duration::from_nanos(*this.jitter), registry));
                        *this.stage = WaitStage::Jitter(turn, jitter);
                        continue;
                    }
                    EntryPoll::Wait(entry, until) => {
                        // One that has looked in vain does not look without end.
                        let again =
                            Instant::now().checked_add(RECHECK_INTERVAL).filter(|_| has_checked);
                        let until = again.map_or(until, |again| again.max(until));
                        (WaitStage::Waiting { entry, has_checked: false }, until)
                    }
                    EntryPoll::Drained => return Poll::Ready(Err(Drained)),
                },
                WaitStage::Jitter(turn, mut jitter) => {
                    let until = jitter.poll(registry, cx);
                    (WaitStage::Jitter(turn, jitter), until)
                }
                // A future that has given its answer is not polled again.
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
                WaitStage::Waiting { entry, .. } => {
                    entry.grant();
                    *this.stage = WaitStage::Waiting { entry, has_checked: true };
                }
                stage => *this.stage = stage,
            }
        }
    }
}

impl Jitter {
    fn new(jitter: Duration, registry: Option<&Arc<QueueRegistry>>) -> Self {
        let now = Instant::now();
        let drained = registry.map(drained_by);
        // Some decades are as good as for ever.
        Self { until: now.checked_add(jitter.min(FAR_FUTURE)).unwrap_or(now), drained }
    }

    /// Until when it lasts: no longer than all waiting.
    fn poll(&mut self, registry: Option<&Arc<QueueRegistry>>, cx: &mut Context<'_>) -> Instant {
        // Before the end is read, so that an end that is set then is heard of.
        while let (Some(registry), Some(drained)) = (registry, &mut self.drained)
            && drained.as_mut().poll(cx).is_ready()
        {
            // There may be another end, which comes sooner.
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

/// After which it looks again if its instant has come and its turn has not.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);

const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);
