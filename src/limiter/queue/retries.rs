//! The queues on a bucket that have free slots to be undone later.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use super::time_slot::StoreEvent;
use crate::clock::Timestamp;

/// When a slot was reserved: the time of the store, then the number of the answer in this limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RetryKey(Timestamp, u64);

impl RetryKey {
    pub(super) const fn new(made: &StoreEvent) -> Self {
        Self(made.at, made.number)
    }
}

/// The queues `Q` on one bucket with free slots that the store refused to undo.
///
/// The newest free slot on a bucket has to be undone first, and it may be in any of the queues on
/// that bucket. So when a slot is undone, only the queue with the next newest one is tried, and
/// then the one after it only if that has succeeded. A bucket may have as many queues as there are
/// clients: to try all of them would be as many calls of the store for each slot.
#[derive(Debug)]
pub(super) struct Retries<Q> {
    /// By the newest free slot of each queue. Each queue is in it once.
    kept: BTreeMap<RetryKey, Weak<Q>>,
    /// The keys of `kept`, by the address of the queue. No other queue has the address: the `Weak`
    /// keeps the allocation.
    keys: HashMap<usize, RetryKey>,
    /// The queues to try once a pending return is answered, by address.
    awaiting: HashMap<usize, Weak<Q>>,
    /// Queues that were dropped are removed from `awaiting` when it has this many.
    sweep: usize,
}

/// How many queues are kept. The slots of the oldest beyond that are spent, unless their own
/// waiters undo them.
const MAX_QUEUES: usize = 1_024;

impl<Q> Default for Retries<Q> {
    fn default() -> Self {
        let (kept, keys, awaiting) = Default::default();
        Self { kept, keys, awaiting, sweep: MAX_QUEUES }
    }
}

impl<Q> Retries<Q> {
    /// Keeps a queue. Its newest free slot was reserved at `made`.
    pub(super) fn keep(&mut self, made: RetryKey, queue: &Arc<Q>) {
        if let Some(before) = self.keys.insert(Arc::as_ptr(queue).addr(), made) {
            // A queue that stayed under its old key as well would be tried twice, and would take
            // the place of another one.
            self.kept.remove(&before);
        }
        self.kept.insert(made, Arc::downgrade(queue));
        if self.kept.len() > MAX_QUEUES
            && let Some((_, queue)) = self.kept.pop_first()
        {
            self.keys.remove(&queue.as_ptr().addr());
        }
    }

    /// Takes out the queue with the newest free slot, and when that slot was reserved.
    pub(super) fn take_newest(&mut self) -> Option<(RetryKey, Arc<Q>)> {
        while let Some((made, queue)) = self.kept.pop_last() {
            self.keys.remove(&queue.as_ptr().addr());
            if let Some(queue) = queue.upgrade() {
                return Some((made, queue));
            }
        }
        None
    }

    /// Removes a queue that has no slot to try.
    pub(super) fn forget(&mut self, queue: &Q) {
        let address = (&raw const *queue).addr();
        if let Some(made) = self.keys.remove(&address) {
            self.kept.remove(&made);
        }
        self.awaiting.remove(&address);
    }

    /// Tries this queue once a pending return is answered.
    pub(super) fn await_return(&mut self, queue: &Arc<Q>) {
        self.awaiting.insert(Arc::as_ptr(queue).addr(), Arc::downgrade(queue));
        if self.awaiting.len() >= self.sweep {
            self.awaiting.retain(|_, queue| queue.strong_count() > 0);
            // Twice what is left: a sweep visits all, and at least as many are added before the
            // next, so one costs a few steps on average.
            self.sweep = self.awaiting.len().saturating_mul(2).max(MAX_QUEUES);
        }
    }

    /// Takes out the queues to try now, since a return was answered.
    pub(super) fn take_awaiting(&mut self) -> Vec<Arc<Q>> {
        // The caller tries them after it has unlocked the ledger: a try locks the queue, and may
        // come back here.
        let awaiting = std::mem::take(&mut self.awaiting);
        awaiting.into_values().filter_map(|queue| queue.upgrade()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(number: u64) -> RetryKey {
        RetryKey(Timestamp::UNIX_EPOCH, number)
    }

    #[test]
    fn the_slot_that_was_made_last_is_tried_first() {
        let mut retries = Retries::default();
        let queues: Vec<_> = (0..4_u64).map(Arc::new).collect();
        for nth in [1, 3, 0, 2] {
            retries.keep(made(10 * *queues[nth]), &queues[nth]);
        }
        // Kept again with a newer or an older slot, which replaces the first.
        retries.keep(made(50), &queues[1]);
        retries.keep(made(15), &queues[3]);
        retries.keep(made(25), &queues[2]);
        retries.forget(&queues[0]);
        let taken: Vec<_> = std::iter::from_fn(|| retries.take_newest()).collect();
        let taken: Vec<_> = taken.iter().map(|(made, queue)| (*made, **queue)).collect();
        assert_eq!(taken, [(made(50), 1), (made(25), 2), (made(15), 3)]);
        assert!(retries.keys.is_empty());
    }

    #[test]
    fn the_number_of_remembered_queues_has_a_bound() {
        let mut retries = Retries::default();
        let queues: Vec<_> = (0..5_000_u64).map(Arc::new).collect();
        for queue in &queues {
            // However often a queue is kept, it is counted once.
            (0..3).for_each(|again| retries.keep(made(3 * **queue + again), queue));
        }
        assert_eq!((retries.kept.len(), retries.keys.len()), (MAX_QUEUES, MAX_QUEUES));
        for _ in 0..5_000 {
            // Dropped at once.
            retries.await_return(&Arc::new(0));
        }
        assert!(retries.awaiting.len() <= 2 * MAX_QUEUES);
        assert!(retries.take_awaiting().is_empty());
        drop(queues);
        assert!(retries.take_newest().is_none());
        assert!(retries.keys.is_empty());
    }
}
