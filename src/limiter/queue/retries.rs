//! The queues on a bucket whose free slots are to be tried once more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use super::time_slot::StoreEvent;
use crate::clock::Timestamp;

/// When a slot was made, among all of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RetryKey(Timestamp, u64);

impl RetryKey {
    pub(super) const fn new(made: &StoreEvent) -> Self {
        Self(made.at, made.number)
    }
}

/// The queues `Q` that have free slots which could not be undone.
///
/// Of all free slots on a bucket, the one that was made last has to be undone first. So once a slot
/// was undone, one queue is tried, and the next one only if that has undone one as well: not all
/// that wait for the bucket, of which there may be as many as clients.
#[derive(Debug)]
pub(super) struct Retries<Q> {
    /// By their last free slots, each queue once.
    kept: BTreeMap<RetryKey, Weak<Q>>,
    /// The same by the addresses of the queues, which no other queue has while one is kept.
    keys: HashMap<usize, RetryKey>,
    /// Those that are to be tried when a return is there, by their addresses.
    awaiting: HashMap<usize, Weak<Q>>,
    /// With how many to look for those that are gone.
    sweep: usize,
}

/// How many queues are remembered. The slots of others are spent, unless their own waiters try.
const MAX_QUEUES: usize = 1_024;

impl<Q> Default for Retries<Q> {
    fn default() -> Self {
        let (kept, keys, awaiting) = Default::default();
        Self { kept, keys, awaiting, sweep: MAX_QUEUES }
    }
}

impl<Q> Retries<Q> {
    /// The queue keeps a free slot that was made then, and none that was made later.
    pub(super) fn keep(&mut self, made: RetryKey, queue: &Arc<Q>) {
        if let Some(before) = self.keys.insert(Arc::as_ptr(queue).addr(), made) {
            self.kept.remove(&before);
        }
        self.kept.insert(made, Arc::downgrade(queue));
        if self.kept.len() > MAX_QUEUES
            && let Some((_, queue)) = self.kept.pop_first()
        {
            self.keys.remove(&queue.as_ptr().addr());
        }
    }

    /// Takes out the queue whose free slot was made last, and when that was.
    pub(super) fn take_newest(&mut self) -> Option<(RetryKey, Arc<Q>)> {
        while let Some((made, queue)) = self.kept.pop_last() {
            self.keys.remove(&queue.as_ptr().addr());
            if let Some(queue) = queue.upgrade() {
                return Some((made, queue));
            }
        }
        None
    }

    /// The queue has no slot that is worth a try.
    pub(super) fn forget(&mut self, queue: &Q) {
        let address = (&raw const *queue).addr();
        if let Some(made) = self.keys.remove(&address) {
            self.kept.remove(&made);
        }
        self.awaiting.remove(&address);
    }

    /// The queue is to be tried when a return is there.
    pub(super) fn await_return(&mut self, queue: &Arc<Q>) {
        self.awaiting.insert(Arc::as_ptr(queue).addr(), Arc::downgrade(queue));
        if self.awaiting.len() >= self.sweep {
            self.awaiting.retain(|_, queue| queue.strong_count() > 0);
            self.sweep = self.awaiting.len().saturating_mul(2).max(MAX_QUEUES);
        }
    }

    /// Takes out the queues that are to be tried now that a return is there.
    pub(super) fn take_awaiting(&mut self) -> Vec<Arc<Q>> {
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
        // Once more, with a slot that was made before or after the one that is known.
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
    fn what_is_remembered_has_a_bound() {
        let mut retries = Retries::default();
        let queues: Vec<_> = (0..5_000_u64).map(Arc::new).collect();
        for queue in &queues {
            // Each queue is there once, however often it is kept.
            (0..3).for_each(|again| retries.keep(made(3 * **queue + again), queue));
        }
        assert_eq!((retries.kept.len(), retries.keys.len()), (MAX_QUEUES, MAX_QUEUES));
        for _ in 0..5_000 {
            // Gone at once.
            retries.await_return(&Arc::new(0));
        }
        assert!(retries.awaiting.len() <= 2 * MAX_QUEUES);
        assert!(retries.take_awaiting().is_empty());
        drop(queues);
        assert!(retries.take_newest().is_none());
        assert!(retries.keys.is_empty());
    }
}
