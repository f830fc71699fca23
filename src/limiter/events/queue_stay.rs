//! The stay of a request in a queue, told at its begin and at its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::decision::DecisionSource;
use super::observers::Observers;
use super::queue_change::{QueueChange, QueueStep};
use crate::limiter::Limit;

/// Tells the observers that a request [has joined](Self::join) a queue, and how its stay ends. If
/// it is dropped, the request has left.
#[derive(Debug)]
pub(crate) struct QueueStay {
    observers: Arc<Observers>,
    limit: Arc<Limit>,
    source: DecisionSource,
    since: Instant,
    /// The wait that the request was told.
    promised: Duration,
    /// How it ends.
    last_step: QueueStep,
}

impl QueueStay {
    /// The stay of a request that has just got its place in the queue of a limit, with this wait.
    pub(crate) fn new(
        observers: &Arc<Observers>,
        limit: &Arc<Limit>,
        source: DecisionSource,
        promised: Duration,
    ) -> Self {
        let (observers, limit, since) = (Arc::clone(observers), Arc::clone(limit), Instant::now());
        let last_step = QueueStep::Left;
        Self { observers, limit, source, since, promised, last_step }
    }

    /// Tells that it has begun.
    pub(crate) fn join(&self) {
        self.tell(QueueStep::Joined, Duration::ZERO, None);
    }

    /// Tells how it has ended.
    pub(crate) fn end(mut self, step: QueueStep) {
        self.last_step = step;
    }

    fn tell(&self, step: QueueStep, waited: Duration, lateness: Option<Duration>) {
        let Self { limit, source, .. } = self;
        let change = QueueChange { limit, source: *source, step, waited, lateness };
        self.observers.tell(|observer| observer.on_queue(&change));
    }
}

impl Drop for QueueStay {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        let is_served = self.last_step == QueueStep::Served;
        let lateness = is_served.then(|| waited.saturating_sub(self.promised));
        self.tell(self.last_step, waited, lateness);
    }
}
