//! Asks the store to undo the free slots of a queue.
//!
//! # Design
//!
//! Only the newest charge of a bucket can be undone. So a queue asks about one free slot at a time,
//! the newest, and about the one before it once that is undone:
//!
//! ```text
//! A, B, C reserve, all three leave       free: A B C
//! undo C: done, undo B: done, undo A: done
//!
//! A, B, C reserve, another process charges the bucket, all three leave
//! undo C: refused                        free: A B C, on offer to newcomers
//! ```
//!
//! A refusal while a return was pending may be a false one. The slot is then tried again when the
//! return is answered.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::registry::SharedQueue;
use super::reserved_slot::QueueBucket;
use super::time_slot::TimeSlot;
use super::wait_queue::WaitQueue;
use crate::algebra::{State, Verdict};
use crate::backend::{Adjustment, Answer, Applied, BackendError};
use crate::limiter::detached::{DetachOnDrop, noted};
use crate::limiter::lock::lock;

impl SharedQueue {
    /// Undoes the free slots that no process has charged the bucket after, the newest first. Then
    /// tries the slots of other queues on the same buckets, which may be the next ones.
    pub(super) fn undo_free_slots(self: &Arc<Self>) {
        if self.undo_own_slots() {
            self.retry_others();
        }
    }

    /// Undoes free slots of other queues on these buckets, since a charge that was made after them
    /// is undone.
    fn retry_others(&self) {
        // A list and not a recursion: each queue that undoes a slot may free the way for a queue on
        // another bucket, and so on through all of them.
        let mut ledgers = self.ledgers.clone();
        while let Some(ledger) = ledgers.pop() {
            // The newest first: if the store refuses to undo that one, it would refuse the others.
            while let Some((made, queue)) = { lock(&ledger).take_newest() } {
                match queue.with(|waiters| waiters.newest_free()) {
                    Some(newest) if newest == made => queue.with(|waiters| waiters.retry_undo()),
                    // The newest slot of that queue was used since, so another queue may have a
                    // newer one.
                    Some(newest) => {
                        lock(&ledger).keep(newest, &queue);
                        continue;
                    }
                    None => continue,
                }
                // Refused: those made before it would be refused too. Not answered yet: the answer
                // goes on from here.
                if !queue.undo_own_slots() {
                    break;
                }
                let others = queue.ledgers.iter().filter(|one| !Arc::ptr_eq(one, &ledger));
                // Its buckets have one charge less as well. This ledger is at hand anyway.
                ledgers.extend(others.cloned());
            }
        }
    }

    /// Undoes free slots of this queue, and registers it to be tried again if some are left. Returns
    /// whether the store has undone at least one.
    fn undo_own_slots(self: &Arc<Self>) -> bool {
        if self.buckets.iter().all(QueueBucket::is_in_flight) {
            // Other processes may have charged the buckets since: their requests in flight do not
            // depend on this slot.
            while let Some(slot) = self.with(WaitQueue::take_free) {
                self.end_in_flight(&slot);
            }
            return false;
        }
        let mut has_undone = false;
        while let Some(slot) = self.with(|waiters| waiters.next_to_undo()) {
            // The slot is out of the queue, and its `undo` allows no other one until this one is
            // recorded. So the queue need not be locked while the store is asked.
            // Read before `expected`. A return that ends in between is counted exactly there, and
            // at worst the slot is tried once more than needed; in the other order, a false refusal
            // could look like a final one.
            let over_counted = self.ledgers.iter().any(|ledger| lock(ledger).has_pending_return());
            let Some(expected) = self.expected(&slot) else {
                let now = Instant::now();
                self.with(|waiters| waiters.record_refusal(slot, now));
                continue;
            };
            let parts = self.buckets.iter().zip(&slot.taken);
            let undos = parts.zip(expected).map(|((part, taken), after)| {
                let units = taken.units();
                let undo = Adjustment::undo(part.id(), part.bucket(), units, after);
                undo.with_unpaid(taken.unpaid().of(units))
            });
            let undos: SmallVec<[Adjustment<'_>; 2]> = undos.collect();
            let queue = Arc::clone(self);
            let note = move |answer: Option<&Applied>, _: bool| match answer {
                Some(applied) if applied.verdict() == Verdict::Refused => {
                    queue.record_refusal(slot, over_counted);
                }
                // If no answer came, the slot may have been undone, and counts as spent. The others
                // stay free until the next waiter enters or leaves: if they were undone here without
                // a runtime, each would be by the destructor of the one before, one stack frame a slot.
                _ => queue.with(WaitQueue::record_undone),
            };
            let is_undone = |answer: &Result<Applied, BackendError>| {
                answer.as_ref().map_or(true, |applied| applied.verdict() != Verdict::Refused)
            };
            match noted(|| self.backend.adjust(&undos), note) {
                Answer::Ready(answer) => has_undone |= is_undone(&answer),
                // No caller waits for this, so the call goes on in a task if the store answers
                // later, and so does the next slot.
                Answer::Pending(answer) => {
                    let queue = Arc::clone(self);
                    drop(DetachOnDrop::new(Answer::pending(async move {
                        if is_undone(&answer.await) {
                            queue.retry_others();
                        }
                        queue.undo_free_slots();
                        Ok(())
                    })));
                    return false;
                }
            }
        }
        self.keep_for_retry();
        has_undone
    }

    /// Notes the newest free slot in the ledgers.
    fn keep_for_retry(self: &Arc<Self>) {
        let (newest, before) = self.with(|waiters| {
            let newest = waiters.newest_free();
            (newest, std::mem::replace(&mut waiters.kept_by, newest))
        });
        // After the queue is unlocked: a ledger and a queue are never locked at once.
        for ledger in &self.ledgers {
            let mut ledger = lock(ledger);
            // A queue that stayed under its old slot as well would be tried twice, and would take
            // the place of another one.
            if let Some(before) = before {
                ledger.forget(before);
            }
            if let Some(newest) = newest {
                ledger.keep(newest, self);
            }
        }
    }

    /// Tries the refused slots again, since the buckets have changed.
    pub(super) fn retry_undo(self: &Arc<Self>) {
        self.with(|waiters| waiters.retry_undo());
        self.undo_free_slots();
    }

    /// What the buckets hold if no process has charged them since: what the reservation left, plus
    /// what this process has returned since. `None` if that is no longer known, or if a reset has
    /// forgiven the units.
    fn expected(&self, slot: &TimeSlot) -> Option<SmallVec<[State; 2]>> {
        let parts = self.buckets.iter().zip(&self.ledgers);
        let states = parts.zip(&slot.taken).map(|((part, ledger), taken)| {
            let is_forgiven = self.resets.has_forgiven(part.id(), taken.mark());
            let returned = lock(ledger).returned_since(&slot.made).filter(|_| !is_forgiven)?;
            Some(part.bucket().with_returned(taken.state(), returned))
        });
        states.collect()
    }

    /// Records that the store has refused to undo a slot. `over_counted` says whether a return was
    /// counted that it may not have carried out yet, and has perhaps refused for that alone.
    fn record_refusal(self: &Arc<Self>, mut slot: TimeSlot, over_counted: bool) {
        slot.retries = slot.retries.saturating_add(u8::from(over_counted));
        let is_awaited = over_counted && slot.retries <= MAX_RETRIES;
        self.with(|waiters| waiters.record_refusal(slot, Instant::now()));
        let awaiting = self.ledgers.iter().map(|ledger| lock(ledger).await_return(self));
        if is_awaited && !awaiting.fold(false, |any, one| any | one) {
            self.with(WaitQueue::retry_undo);
        }
    }
}

/// How often one slot is tried again after a pending return. In a busy process some return is
/// always pending, and each of these tries is one more call of the store.
const MAX_RETRIES: u8 = 4;
