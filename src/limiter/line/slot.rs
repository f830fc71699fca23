//! A reservation that waits in the memory store.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::LineDriver;
use crate::backend::{Adjustment, Backend, LineTicket, Memory, Reading, WaiterStatus};
use crate::clock::Timestamp;
use crate::limiter::events::QueueStep;
use crate::limiter::grant::Grant;
use crate::limiter::queue::{QueueBucket, ReservedSlot, later, paid_buckets};

/// A place in the line of each bucket that has not granted yet.
///
/// When it is dropped before its work runs, it leaves the lines: the waiters behind it move
/// forward, and tokens that some buckets have granted already go back.
#[derive(Debug)]
pub(crate) struct LineSlot {
    /// The store of the limiter, which has the lines.
    store: Arc<dyn Backend>,
    ticket: LineTicket,
    /// What was taken from each bucket.
    parts: Box<[(QueueBucket, Reading)]>,
    /// The instant that the caller was told; once it is granted, that of the grant.
    at: Timestamp,
    /// The first of these, by the clock of the runtime.
    turn: Instant,
    /// Whether it leaves the lines on drop.
    is_held: bool,
}

impl LineSlot {
    /// The place of these grants. Their work may run `wait` after `now`.
    pub(crate) fn new<'g>(
        store: Arc<dyn Backend>,
        ticket: LineTicket,
        grants: impl Iterator<Item = &'g Grant>,
        now: Timestamp,
        wait: Duration,
    ) -> Self {
        let (turn, at) = (later(Instant::now(), wait), now + wait);
        let parts = paid_buckets(grants).collect();
        Self { store, ticket, parts, at, turn, is_held: true }
    }

    fn lines(&self) -> Option<&Memory> {
        self.store.lines()
    }

    /// When its own timer fires.
    fn deadline(&self) -> Instant {
        let delay = if self.ticket.is_alone { Duration::ZERO } else { DRIVER_TIMEOUT };
        self.turn.checked_add(delay).unwrap_or(self.turn)
    }
}

impl ReservedSlot for LineSlot {
    /// The instant that the caller was told; once it is granted, that of the grant.
    fn at(&self) -> Timestamp {
        self.at
    }

    fn keep(mut self: Box<Self>, grants: &mut dyn Iterator<Item = &mut Grant>) {
        self.is_held = false;
        if let Some(lines) = self.lines() {
            self.ticket.places.iter().for_each(|place| lines.keep(place));
        }
        // After `keep`: the store does not track resets for a place without a waiter, so the marks
        // are final.
        self.note_paid(grants);
    }

    fn enter(&mut self, _: bool) -> Instant {
        self.turn
    }

    /// Notes in the grants which buckets were reset while they had not granted: their tokens were
    /// taken after the reset.
    fn note_paid(&self, grants: &mut dyn Iterator<Item = &mut Grant>) {
        for grant in grants {
            grant.note_paid(|id, paid| {
                Some(paid.with_mark(self.lines()?.mark_of(&self.ticket, id)?))
            });
        }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Result<Option<Instant>, QueueStep> {
        let mut status = self.ticket.waiter.poll(cx.waker());
        // The waker is stored by now, so a grant by another thread wakes the task, whatever happens
        // in between.
        if status == WaiterStatus::Waiting {
            // The store grants all due waiters when a timer is attached, so this one may have its
            // turn now.
            if let Some(lines) = self.lines() {
                for place in &self.ticket.places {
                    lines.attach(place, || LineDriver::try_current(&self.store, *place));
                }
            }
            status = self.ticket.waiter.poll(cx.waker());
        }
        match status {
            WaiterStatus::Granted(at) => {
                self.at = at;
                Ok(None)
            }
            WaiterStatus::Waiting => Ok(Some(self.deadline())),
            WaiterStatus::Drained => Err(QueueStep::Drained),
        }
    }

    fn grant(&self) {
        // In every line, as the request runs only when all of them have granted.
        if let Some(lines) = self.lines() {
            self.ticket.places.iter().for_each(|place| lines.grant_through(place, self.at));
        }
    }

    fn use_up(mut self: Box<Self>) -> Timestamp {
        self.is_held = false;
        self.at
    }
}

impl Drop for LineSlot {
    fn drop(&mut self) {
        if self.is_held
            && let Some(lines) = self.lines()
        {
            // For all buckets. Which of them have granted, only the store can tell under its locks:
            // it refunds those, and the others lose the place in line. A check here could be
            // outdated at once, and a grant after it would be lost.
            let mut refunds = SmallVec::<[Adjustment<'_>; 2]>::new();
            for (bucket, reading) in &self.parts {
                let refund = Adjustment::refund(bucket.id(), bucket.bucket(), reading.units());
                refunds.push(refund.with_mark(reading.mark()));
            }
            lines.leave(&self.ticket, &refunds);
        }
    }
}

/// How late a driver may be, for example because its runtime is blocked, before the waiters' own
/// timers fire. With zero, waiters that are due in the same millisecond would run in the order of
/// their timers and not of the line.
const DRIVER_TIMEOUT: Duration = Duration::from_millis(10);
