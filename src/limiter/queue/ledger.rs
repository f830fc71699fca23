//! Counts what this process has returned to each bucket, so that a return is not taken for a
//! charge.
//!
//! # Design
//!
//! A slot can be undone if no process has charged its bucket since it was reserved. Then the bucket
//! holds exactly what the reservation left, plus what was returned since. The store does the
//! comparison; this process supplies the second number. For example, a reservation left -5 units
//! and a settlement returned 3. The store undoes the slot only if the bucket is at -2.
//!
//! The number must never be too small. With a settlement of 3 left out and another process' charge
//! of 3, the bucket would be at -5 and look untouched. So a return counts in full from before the
//! store is asked until its answer says how much it was, and when. If no answer comes, the return
//! also counts for all reservations of the next minute, since the store may carry it out late. That
//! minute is one of this process: how late the store's clock is then, no answer has shown.
//!
//! A number that is too large does no harm but one: a slot is spent that could have been undone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::time_slot::{CreationKey, StoreEvent};
use crate::algebra::Units;
use crate::backend::BucketId;
use crate::clock::Timestamp;
use crate::limiter::lock::lock;

/// The returns to one bucket, and the queues `Q` on it with free slots that the store refused to undo.
///
/// The newest free slot on a bucket has to be undone first, and it may be in any of the queues on
/// that bucket. So when a slot is undone, only the queue with the next newest one is tried, and
/// then the one after it only if that has succeeded. A bucket may have as many queues as there are
/// clients: to try all of them would be as many calls of the store for each slot.
#[derive(Debug)]
pub(super) struct Ledger<Q> {
    answered: VecDeque<(StoreEvent, Units)>,
    /// Returns without an answer. Each counts for reservations that are heard of until that
    /// instant.
    unanswered: VecDeque<(Instant, Units)>,
    forgotten: Forgotten,
    /// The most units that the store was asked to return and has not answered.
    pending: Units,
    /// By the newest free slot of each queue.
    kept: BTreeMap<CreationKey, Weak<Q>>,
    /// The queues to try once a pending return is answered.
    awaiting: Vec<Arc<Q>>,
}

/// The latest returns that are no longer listed: when the store made the last of those that it answered,
/// and until when the last of those without an answer counts. No reservation before them is undone.
type Forgotten = (Option<Timestamp>, Option<Instant>);

/// How many returns of each kind are listed. A reservation that is older than these is not undone.
const MAX_RETURNS: usize = 1_024;

/// How long a store may still carry out a return after this process gave up its answer.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// How many queues are kept. The slots of the oldest beyond that are spent, unless their own
/// waiters undo them.
const MAX_KEPT: usize = 1_024;

/// How many queues are tried when a return is answered.
const MAX_AWAITING: usize = 64;

impl<Q> Ledger<Q> {
    /// One without returns but those of ledgers that were dropped.
    const fn new(forgotten: Forgotten) -> Self {
        Self {
            answered: VecDeque::new(),
            unanswered: VecDeque::new(),
            forgotten,
            pending: 0,
            kept: BTreeMap::new(),
            awaiting: Vec::new(),
        }
    }

    /// Counts units that the store is asked to return.
    pub(super) const fn begin_return(&mut self, units: Units) {
        self.pending = self.pending.saturating_add(units);
    }

    /// Records the answer about a return of `asked` units: when the store carried it out and how
    /// much it was. `None` if no answer has come until `now`.
    pub(super) fn end_return(
        &mut self,
        asked: Units,
        returned: Option<(StoreEvent, Units)>,
        now: Instant,
    ) {
        // Both under one lock. In between, the return would be in neither number, and an undo of
        // another thread would expect too little.
        self.pending = self.pending.saturating_sub(asked);
        if let Some((event, units)) = returned {
            self.answered.push_back((event, units));
        } else {
            self.unanswered.push_back((now.checked_add(MAX_DELAY).unwrap_or(now), asked));
        }
        if self.answered.len() > MAX_RETURNS
            && let Some((oldest, _)) = self.answered.pop_front()
        {
            self.forgotten.0 = self.forgotten.0.max(Some(oldest.at));
        }
        if self.unanswered.len() > MAX_RETURNS
            && let Some((oldest, _)) = self.unanswered.pop_front()
        {
            self.forgotten.1 = self.forgotten.1.max(Some(oldest));
        }
    }

    /// The most units that may have been returned since a reservation; `None` if that is no longer
    /// known.
    pub(super) fn returned_since(&self, made: &StoreEvent) -> Option<Units> {
        let (at, until) = self.forgotten;
        if at.is_some_and(|at| made.at <= at) || until.is_some_and(|until| made.heard <= until) {
            return None;
        }
        let answered = self.answered.iter().filter(|(event, _)| !event.is_before(made));
        let unanswered = self.unanswered.iter().filter(|(until, _)| made.heard <= *until);
        let since = answered.map(|(_, units)| units).chain(unanswered.map(|(_, units)| units));
        Some(since.fold(self.pending, |all, units| all.saturating_add(*units)))
    }

    /// Whether the store was asked to return something and has not answered.
    pub(super) const fn has_pending_return(&self) -> bool {
        self.pending > 0
    }

    /// Tries a queue on the bucket once a pending return is answered. Returns whether there is one.
    pub(super) fn await_return(&mut self, queue: &Arc<Q>) -> bool {
        let is_pending = self.has_pending_return();
        let is_known = self.awaiting.iter().any(|known| Arc::ptr_eq(known, queue));
        if is_pending && !is_known && self.awaiting.len() < MAX_AWAITING {
            self.awaiting.push(Arc::clone(queue));
        }
        is_pending
    }

    /// Keeps a queue by its newest free slot.
    pub(super) fn keep(&mut self, newest: CreationKey, queue: &Arc<Q>) {
        self.kept.insert(newest, Arc::downgrade(queue));
        if self.kept.len() > MAX_KEPT {
            self.kept.pop_first();
        }
    }

    /// Removes the queue that is kept by this slot.
    pub(super) fn forget(&mut self, newest: CreationKey) {
        self.kept.remove(&newest);
    }

    /// Takes out the queue with the newest free slot, and that slot.
    pub(super) fn take_newest(&mut self) -> Option<(CreationKey, Arc<Q>)> {
        while let Some((newest, queue)) = self.kept.pop_last() {
            if let Some(queue) = queue.upgrade() {
                return Some((newest, queue));
            }
        }
        None
    }

    /// Takes out the queues to try now, since a return was answered.
    pub(super) fn take_awaiting(&mut self) -> Vec<Arc<Q>> {
        // The caller tries them after it has unlocked the ledger: a try locks the queue, and may
        // come back here.
        std::mem::take(&mut self.awaiting)
    }

    /// Adds all its returns to those of ledgers that were dropped.
    fn drop_returns(&self, (at, until): &mut Forgotten) {
        let answered = self.answered.iter().map(|(event, _)| event.at).max();
        let unanswered = self.unanswered.iter().map(|(until, _)| *until).max();
        *at = self.forgotten.0.max(answered).max(*at);
        *until = self.forgotten.1.max(unanswered).max(*until);
    }
}

/// The ledgers of all buckets that have a queue, or had a return lately.
#[derive(Debug)]
pub(super) struct Ledgers<Q> {
    /// By a hash of the bucket's name. If two buckets share a ledger by chance, its count is too
    /// large for both, which only spends slots.
    ledgers: HashMap<u64, Arc<Mutex<Ledger<Q>>>>,
    hasher: RandomState,
    /// The returns of ledgers that were dropped.
    forgotten: Forgotten,
    /// Unused ledgers are dropped when there are this many.
    sweep: usize,
}

/// How many ledgers there may be at least before unused ones are dropped.
const MIN_LEDGERS: usize = 1_024;

impl<Q> Default for Ledgers<Q> {
    fn default() -> Self {
        let (ledgers, hasher, forgotten) = Default::default();
        Self { ledgers, hasher, forgotten, sweep: MIN_LEDGERS }
    }
}

impl<Q> Ledgers<Q> {
    /// The ledger of a bucket. It is kept for as long as the caller holds it.
    pub(super) fn get(&mut self, id: BucketId<'_>) -> Arc<Mutex<Ledger<Q>>> {
        if self.ledgers.len() >= self.sweep {
            self.sweep();
        }
        let key = self.hasher.hash_one(id);
        // A ledger that was dropped may have been that of this bucket.
        let new = || Arc::new(Mutex::new(Ledger::new(self.forgotten)));
        Arc::clone(self.ledgers.entry(key).or_insert_with(new))
    }

    /// Drops the ledgers that neither a queue nor a pending return holds.
    fn sweep(&mut self) {
        let forgotten = &mut self.forgotten;
        self.ledgers.retain(|_, ledger| {
            // A count of one cannot rise here: new handles come from `get` alone.
            let is_used = Arc::strong_count(ledger) > 1;
            if !is_used {
                lock(ledger).drop_returns(forgotten);
            }
            is_used
        });
        // At least as many are added before the next sweep as this one leaves, so that a new ledger
        // pays for a few steps on average.
        self.sweep = self.ledgers.len().saturating_mul(2).max(MIN_LEDGERS);
    }
}

#[cfg(test)]
mod tests {
    use super::super::time_slot::SlotKey;
    use super::*;
    use crate::backend::Key;

    /// One that was not dated, in a ledger that was dropped, kept all slots of the limiter from
    /// being undone, for as long as the process ran.
    #[test]
    fn a_return_without_an_answer_counts_for_a_minute_in_a_dropped_ledger_too() {
        let (mut ledgers, now) = (Ledgers::<()>::default(), Instant::now());
        let keys: Vec<_> = (0..2 * MIN_LEDGERS as u64).map(Key::from).collect();
        let ids = || keys.iter().map(|key| BucketId::new("limit", key));
        for id in ids() {
            let ledger = ledgers.get(id);
            lock(&ledger).begin_return(5);
            lock(&ledger).end_return(5, None, now);
        }
        let (at, number, thread) = (Timestamp::UNIX_EPOCH, 0, None);
        let mut returned = |after| {
            let made = StoreEvent { at, number, thread, heard: now + after };
            let all = ids().map(|id| lock(&ledgers.get(id)).returned_since(&made));
            all.map(|units| units.unwrap_or(5)).collect::<Vec<_>>()
        };
        assert_eq!(returned(MAX_DELAY), vec![5; keys.len()]);
        assert_eq!(returned(MAX_DELAY + Duration::from_micros(1)), vec![0; keys.len()]);
    }

    fn made(number: u64) -> CreationKey {
        let at = Timestamp::UNIX_EPOCH;
        (at, SlotKey::new(std::iter::empty(), at, number))
    }

    #[test]
    fn the_queue_with_the_newest_free_slot_is_tried_first() {
        let mut ledger = Ledger::new(Forgotten::default());
        let queues: Vec<_> = (0..5_u64).map(Arc::new).collect();
        for nth in [1, 3, 0, 2, 4] {
            ledger.keep(made(*queues[nth]), &queues[nth]);
        }
        ledger.forget(made(3));
        let queues: Vec<_> = queues.into_iter().filter(|queue| **queue != 1).collect();
        let taken: Vec<_> = std::iter::from_fn(|| ledger.take_newest()).collect();
        let taken: Vec<_> = taken.into_iter().map(|(newest, queue)| (newest, *queue)).collect();
        assert_eq!(taken, [(made(4), 4), (made(2), 2), (made(0), 0)], "1 was dropped");
        drop(queues);
    }

    #[test]
    fn the_queues_that_are_remembered_have_a_bound() {
        let mut ledger = Ledger::new(Forgotten::default());
        let queues: Vec<_> = (0..5_000_u64).map(Arc::new).collect();
        for queue in &queues {
            ledger.keep(made(**queue), queue);
            assert!(!ledger.await_return(queue), "no return is pending");
        }
        assert!(ledger.take_awaiting().is_empty());
        ledger.begin_return(1);
        for queue in queues.iter().flat_map(|queue| [queue; 2]) {
            assert!(ledger.await_return(queue));
        }
        let awaiting = ledger.take_awaiting();
        assert_eq!(awaiting, queues[..MAX_AWAITING], "each once");
        let kept = std::iter::from_fn(|| ledger.take_newest().map(|(_, queue)| *queue));
        assert!(kept.eq((5_000 - MAX_KEPT as u64..5_000).rev()), "the newest");
    }
}
