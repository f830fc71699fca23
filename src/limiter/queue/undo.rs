//! Undoing the slots that no waiter uses.

use std::sync::Arc;

use smallvec::SmallVec;

use super::registry::SharedQueue;
use super::time_slot::TimeSlot;
use crate::algebra::{State, Verdict};
use crate::backend::{Adjustment, Applied, BackendError};
use crate::limiter::detached::DetachOnDrop;

impl SharedQueue {
    /// Undoes the free slots that can be: those since which no process has charged the bucket. One
    /// after another, as the one before can be undone only when the one after it was.
    ///
    /// Then forgets the queue if it has no waiter and no reservation.
    pub(super) fn undo_free_slots(self: &Arc<Self>) {
        while let Some(slot) = self.with(|line, _| line.free.next_to_undo()) {
            let over_counted = self.is_returning();
            let Some(expected) = self.expected(&slot) else {
                let now = self.now();
                self.with(|line, wakers| line.refused(slot, now, wakers));
                continue;
            };
            let mut undo = SmallVec::<[Adjustment<'_>; 2]>::new();
            let parts = self.whose().parts().iter().zip(slot.grant.taken.as_slice());
            for ((part, &units), left) in parts.zip(expected) {
                undo.push(Adjustment::undo(part.id(), part.bucket(), units, left));
            }
            let answer = DetachOnDrop::new(self.backend.adjust(&undo));
            let undo = Undo { queue: Arc::clone(self), slot: Some(slot), over_counted };
            match answer {
                ready @ DetachOnDrop::Ready(_) => ready.finish_with(|answer| undo.hear(&answer)),
                // No caller waits for this, so a store that answers later completes it in a task of
                // its own.
                pending @ DetachOnDrop::Pending(_) => {
                    pending.finish_with(|answer| {
                        let queue = Arc::clone(&undo.queue);
                        undo.hear(&answer);
                        queue.undo_free_slots();
                    });
                    return;
                }
            }
        }
        if self.with(|line, _| line.is_empty() && !line.free.waits_for_return())
            && let Some(registry) = self.registry.upgrade()
        {
            registry.forget(self);
        }
    }

    /// Whether the store was asked to return something and has not answered.
    fn is_returning(&self) -> bool {
        self.ledgers.iter().any(|ledger| ledger.is_asking())
    }

    /// Hears that something was returned: an undo that the store carried out before was refused for
    /// that.
    pub(super) fn returned(self: &Arc<Self>) {
        if self.with(|line, _| line.free.waits_for_return()) {
            self.retry_undo();
        }
    }

    /// Asks once more about slots that could not be undone: something has changed.
    pub(super) fn retry_undo(self: &Arc<Self>) {
        self.with(|line, _| line.free.retry());
        self.undo_free_slots();
    }

    /// What the buckets hold if none was charged since: what the reservation left, and what this
    /// process has returned since. None if that is not known any more.
    fn expected(&self, slot: &TimeSlot) -> Option<SmallVec<[State; 2]>> {
        let parts = self.whose().parts().iter().zip(&self.ledgers);
        let states = parts.zip(slot.grant.left.as_slice()).map(|((part, ledger), left)| {
            let returned = ledger.returned_since(&slot.grant.made)?;
            Some(part.bucket().with_returned(*left, returned))
        });
        states.collect()
    }
}

/// A slot that the store was asked to undo.
struct Undo {
    queue: Arc<SharedQueue>,
    /// None once the answer was heard.
    slot: Option<TimeSlot>,
    /// Whether returns were counted that the store may not have carried out yet.
    over_counted: bool,
}

impl Undo {
    fn hear(mut self, answer: &Result<Applied, BackendError>) {
        let Some(slot) = self.slot.take() else { return };
        let is_refused = answer.as_ref().is_ok_and(|applied| applied.verdict() == Verdict::Refused);
        if is_refused {
            let now = self.queue.now();
            self.queue.with(|line, wakers| {
                line.refused(slot, now, wakers);
                if self.over_counted {
                    line.free.retry_on_return();
                }
            });
            // Only now, as a return that was heard before that has tried nothing.
            if self.over_counted && !self.queue.is_returning() {
                self.queue.with(|line, _| line.free.retry());
            }
            return;
        }
        // What became of it in a store that gives no answer is unknown: it is spent then.
        self.queue.with(|line, _| line.free.undone());
        // What other queues have reserved may be untouched again.
        let others = self.queue.ledgers.iter().flat_map(|ledger| ledger.queues());
        let others = others.filter(|other| !Arc::ptr_eq(other, &self.queue));
        others.for_each(|other| other.retry_undo());
    }
}

/// Not heard, as the runtime has gone or the store's client has panicked.
impl Drop for Undo {
    fn drop(&mut self) {
        if self.slot.take().is_some() {
            self.queue.with(|line, _| line.free.undone());
            self.queue.undo_free_slots();
        }
    }
}
