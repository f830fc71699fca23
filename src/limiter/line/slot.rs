//! A reservation in the memory store: a place in line.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::LineDriver;
use crate::algebra::{State, Units};
use crate::backend::{Adjustment, LineTicket, Memory, ResetMark, WaiterStatus};
use crate::clock::Timestamp;
use crate::limiter::grant::Grant;
use crate::limiter::queue::{Drained, QueueBucket};

/// A place in the line of each bucket that has granted nothing yet.
///
/// Dropped before its work runs, it leaves: those behind it move forward, and what was granted
/// already goes back.
#[derive(Debug)]
pub(crate) struct LineSlot {
    memory: Arc<Memory>,
    ticket: LineTicket,
    parts: Box<[LinePart]>,
    promised: Timestamp,
    /// The same, as the runtime counts time.
    turn: Instant,
    /// Whether it is still to leave.
    is_held: bool,
}

/// What was taken of one bucket.
#[derive(Debug)]
struct LinePart {
    bucket: QueueBucket,
    units: Units,
    left: State,
    mark: ResetMark,
}

/// A turn that has come: its work may run.
///
/// Dropped before it does, its tokens are given back.
#[derive(Debug)]
pub(crate) struct LineTurn {
    pub(crate) slot: LineSlot,
    pub(crate) at: Timestamp,
}

impl LineSlot {
    /// The place of these grants, whose work may run after `wait` from `now` on.
    pub(crate) fn new<'g>(
        memory: &Arc<Memory>,
        ticket: LineTicket,
        grants: impl Iterator<Item = &'g Grant>,
        now: Timestamp,
        wait: Duration,
    ) -> Self {
        let parts = grants.flat_map(|grant| {
            grant.paid().map(|paid| {
                let limit = Arc::clone(grant.shared_limit());
                let bucket = QueueBucket::new(limit, grant.key().clone(), paid.shard);
                LinePart { bucket, units: paid.units, left: paid.after, mark: paid.mark }
            })
        });
        let start = Instant::now();
        // Some decades are as good as for ever.
        let turn = start.checked_add(wait.min(FAR_FUTURE)).unwrap_or(start);
        let (memory, parts, promised) = (Arc::clone(memory), parts.collect(), now + wait);
        Self { memory, ticket, parts, promised, turn, is_held: true }
    }

    /// The instant that it was told.
    pub(crate) const fn promised(&self) -> Timestamp {
        self.promised
    }

    /// When its turn comes if no other leaves.
    pub(crate) const fn turn(&self) -> Instant {
        self.turn
    }

    /// When it looks by itself whether its turn has come.
    pub(crate) fn deadline(&self) -> Instant {
        let patience = if self.ticket.is_alone { Duration::ZERO } else { DRIVER_TIMEOUT };
        self.turn.checked_add(patience).unwrap_or(self.turn)
    }

    /// Keeps the place without waiting in it: the work will run at the instant that was told.
    pub(crate) fn keep<'g>(mut self, grants: impl Iterator<Item = &'g mut Grant>) {
        self.is_held = false;
        for place in &self.ticket.places {
            self.memory.keep(place);
        }
        // Only now: what is kept does not outlive the next reset.
        self.outlive_resets(grants);
    }

    /// What was granted by a bucket that was reset in the meantime is taken after that.
    pub(crate) fn outlive_resets<'g>(&self, grants: impl Iterator<Item = &'g mut Grant>) {
        for grant in grants {
            grant.outlive_resets(|id| self.memory.mark_of(&self.ticket, id));
        }
    }

    /// When it was granted. If it waits, the waker is woken when that changes.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<Timestamp, Drained>> {
        let mut status = self.ticket.waiter.poll(waker);
        if status == WaiterStatus::Waiting {
            // That grants what is due, and so it may be its turn.
            for place in &self.ticket.places {
                self.memory.attach(place, || LineDriver::in_this_runtime(&self.memory, *place));
            }
            status = self.ticket.waiter.poll(waker);
        }
        match status {
            WaiterStatus::Granted(at) => Poll::Ready(Ok(at)),
            WaiterStatus::Waiting => Poll::Pending,
            WaiterStatus::Drained => Poll::Ready(Err(Drained)),
        }
    }

    /// The instant that it was told has come.
    pub(crate) fn grant(&self) {
        for place in &self.ticket.places {
            self.memory.grant_through(place, self.promised);
        }
    }

    /// The work runs now: nothing is given back when this is dropped.
    pub(crate) fn use_up(&mut self) {
        self.is_held = false;
    }

    /// The buckets, and what each held after this was reserved.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (&QueueBucket, State)> {
        self.parts.iter().map(|part| (&part.bucket, part.left))
    }
}

impl Drop for LineSlot {
    fn drop(&mut self) {
        if self.is_held {
            let mut refunds = SmallVec::<[Adjustment<'_>; 2]>::new();
            for LinePart { bucket, units, mark, .. } in &self.parts {
                let refund = Adjustment::refund(bucket.id(), bucket.bucket(), *units);
                refunds.push(refund.taken_at(*mark));
            }
            self.memory.leave(&self.ticket, &refunds);
        }
    }
}

/// How late the driver of a line may be, as when its runtime is blocked, before a waiter looks by
/// itself. Were it zero, waiters of one millisecond would run in the order of their timers.
const DRIVER_TIMEOUT: Duration = Duration::from_millis(10);

const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);
