//! Undoing the slots that no waiter uses.

use std::sync::Arc;

use smallvec::SmallVec;

use super::registry::SharedQueue;
use super::time_slot::TimeSlot;
use crate::algebra::{State, Verdict};
use crate::backend::{Adjustment, Answer, Applied, BackendError};
use crate::limiter::detached::DetachOnDrop;

impl SharedQueue {
    /// Undoes the free slots that can be: those since which no process has charged the bucket. One
    /// after another, as the one before can be undone only when the one after it was.
    ///
    /// Then forgets the queue if it has no waiter and no reservation.
    pub(super) fn undo_free_slots(self: &Arc<Self>) {
        if self.undo_own_slots() == UndoResult::Undone {
            self.retry_others();
        }
    }

    /// Undoes what other queues have reserved and given up, as it may be untouched again.
    fn retry_others(&self) {
        let mut ledgers = self.ledgers.clone();
        while let Some(ledger) = ledgers.pop() {
            // The last one that was made first: if that cannot be undone, none before it can.
            while let Some((made, queue)) = { ledger.retries().take_newest() } {
                match queue.with(|waiters, _| waiters.free.newest()) {
                    Some(newest) if newest == made => queue.with(|waiters, _| waiters.free.retry()),
                    // It was made then, or before what another queue keeps.
                    Some(newest) => {
                        ledger.retries().keep(newest, &queue);
                        continue;
                    }
                    None => continue,
                }
                match queue.undo_own_slots() {
                    UndoResult::Undone => {
                        let others = queue.ledgers.iter().filter(|one| !Arc::ptr_eq(one, &ledger));
                        ledgers.extend(others.cloned());
                    }
                    UndoResult::Nothing => {}
                    UndoResult::Kept | UndoResult::Asked => break,
                }
            }
        }
    }

    fn undo_own_slots(self: &Arc<Self>) -> UndoResult {
        let mut result = UndoResult::Nothing;
        while let Some(slot) = self.with(|waiters, wakers| waiters.next_to_undo(self.now(), wakers))
        {
            let over_counted = self.has_pending_return();
            let Some(expected) = self.expected(&slot) else {
                self.with(|waiters, wakers| waiters.record_refusal(slot, self.now(), wakers));
                continue;
            };
            let mut undo = SmallVec::<[Adjustment<'_>; 2]>::new();
            let parts = self.buckets().parts().iter().zip(slot.grant.taken.as_slice());
            for ((part, &units), after) in parts.zip(expected) {
                undo.push(Adjustment::undo(part.id(), part.bucket(), units, after));
            }
            let answer = self.backend.adjust(&undo);
            let undo = Undo { queue: Arc::clone(self), slot: Some(slot), over_counted };
            match answer {
                Answer::Ready(answer) => {
                    if undo.finish(&answer) {
                        result = UndoResult::Undone;
                    }
                }
                // No caller waits for this, so a store that answers later completes it in a task of
                // its own.
                pending @ Answer::Pending(_) => {
                    DetachOnDrop::new(pending).finish_with(|answer| {
                        let queue = Arc::clone(&undo.queue);
                        if undo.finish(&answer) {
                            queue.retry_others();
                        }
                        queue.undo_free_slots();
                    });
                    return UndoResult::Asked;
                }
            }
        }
        if let Some(made) = self.with(|waiters, _| waiters.free.newest()) {
            for ledger in &self.ledgers {
                ledger.retries().keep(made, self);
            }
            if result == UndoResult::Nothing {
                result = UndoResult::Kept;
            }
        }
        if !self.with(|waiters, _| waiters.free.waits_for_return())
            && self.is_empty()
            && let Some(registry) = self.registry.upgrade()
        {
            let has_slots = self.with(|waiters, _| waiters.free.newest().is_some());
            let forgotten = match has_slots {
                true => registry.retention.keep(self),
                false => Some(Arc::clone(self)),
            };
            if let Some(forgotten) = forgotten {
                registry.forget(&forgotten);
            }
        }
        result
    }

    /// Whether the store was asked to return something and has not answered.
    fn has_pending_return(&self) -> bool {
        self.ledgers.iter().any(|ledger| ledger.has_pending_return())
    }

    /// Hears that something was returned: an undo that the store carried out before was refused for
    /// that.
    pub(super) fn retry_after_return(self: &Arc<Self>) {
        if self.with(|waiters, _| waiters.free.waits_for_return()) {
            self.retry_undo();
        }
    }

    /// Asks once more about slots that could not be undone: something has changed.
    pub(super) fn retry_undo(self: &Arc<Self>) {
        self.with(|waiters, _| waiters.free.retry());
        self.undo_free_slots();
    }

    /// What the buckets hold if none was charged since: what the reservation left, and what this
    /// process has returned since. None if that is not known any more.
    fn expected(&self, slot: &TimeSlot) -> Option<SmallVec<[State; 2]>> {
        let parts = self.buckets().parts().iter().zip(&self.ledgers);
        let states = parts.zip(slot.grant.after.as_slice()).map(|((part, ledger), after)| {
            let returned = ledger.returned_since(&slot.grant.made)?;
            Some(part.bucket().with_returned(*after, returned))
        });
        states.collect()
    }
}

/// What became of the free slots of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UndoResult {
    /// There was none.
    Nothing,
    /// At least one was undone.
    Undone,
    /// None can be undone now.
    Kept,
    /// The store was asked, and answers later.
    Asked,
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
    /// Returns whether the slot was undone, as far as is known.
    fn finish(mut self, answer: &Result<Applied, BackendError>) -> bool {
        let Some(slot) = self.slot.take() else { return false };
        let is_refused = answer.as_ref().is_ok_and(|applied| applied.verdict() == Verdict::Refused);
        if is_refused {
            let is_awaited = self.queue.with(|waiters, wakers| {
                waiters.record_refusal(slot, self.queue.now(), wakers);
                self.over_counted && waiters.free.retry_on_return()
            });
            // Only now, as a return that was heard before that has tried nothing.
            if is_awaited {
                for ledger in &self.queue.ledgers {
                    ledger.retries().await_return(&self.queue);
                }
                if !self.queue.has_pending_return() {
                    self.queue.with(|waiters, _| waiters.free.retry());
                }
            }
            return false;
        }
        // What became of it in a store that gives no answer is unknown: it is spent then.
        self.queue.with(|waiters, _| waiters.free.record_undone());
        true
    }
}

/// Not heard, as the runtime has gone or the store's client has panicked.
impl Drop for Undo {
    fn drop(&mut self) {
        if self.slot.take().is_some() {
            self.queue.with(|waiters, _| waiters.free.record_undone());
            self.queue.undo_free_slots();
        }
    }
}
