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
/// was undone, one queue is tried, and the next one only if that has undone one as well: not all that
/// wait for the bucket, of which there may be as many as clients.
#[derive(Debug)]
pub(super) struct Retries<Q> {
    /// By their last free slots. What is not true any more is tried in vain.
    kept: BTreeMap<RetryKey, Weak<Q>>,
    /// Those that are to be tried when a return is there, by their addresses.
    awaiting: HashMap<usize, Weak<Q>>,
    /// With how many to look for those that are gone.
    sweep: usize,
}

/// How many queues are remembered. The slots of others are spent, unless their own waiters try.
const KEPT: usize = 1_024;

impl<Q> Default for Retries<Q> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), awaiting: HashMap::new(), sweep: KEPT }
    }
}

impl<Q> Retries<Q> {
    /// The queue keeps a free slot that was made then.
    pub(super) fn keep(&mut self, made: RetryKey, queue: &Arc<Q>) {
        self.kept.entry(made).or_insert_with(|| Arc::downgrade(queue));
        if self.kept.len() > KEPT {
            self.kept.pop_first();
        }
    }

    /// Takes out the queue whose free slot was made last.
    pub(super) fn take_newest(&mut self) -> Option<Arc<Q>> {
        while let Some((_, queue)) = self.kept.pop_last() {
            if let Some(queue) = queue.upgrade() {
                return Some(queue);
            }
        }
        None
    }

    /// The queue is to be tried when a return is there.
    pub(super) fn await_return(&mut self, queue: &Arc<Q>) {
        self.awaiting.insert(Arc::as_ptr(queue).addr(), Arc::downgrade(queue));
        if self.awaiting.len() >= self.sweep {
            self.awaiting.retain(|_, queue| queue.strong_count() > 0);
            self.sweep = self.awaiting.len().saturating_mul(2).max(KEPT);
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
            retries.keep(made(u64::try_from(nth).unwrap()), &queues[nth]);
        }
        let taken: Vec<_> = std::iter::from_fn(|| retries.take_newest()).collect();
        assert_eq!(taken.iter().map(|queue| **queue).collect::<Vec<_>>(), [3, 2, 1, 0]);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut retries = Retries::default();
        let queue = Arc::new(());
        for number in 0..5_000 {
            retries.keep(made(number), &queue);
        }
        assert_eq!(retries.kept.len(), KEPT);
        for _ in 0..5_000 {
            // Gone at once.
            retries.await_return(&Arc::new(()));
        }
        assert!(retries.awaiting.len() <= 2 * KEPT);
        assert!(retries.take_awaiting().is_empty());
        drop(queue);
        assert!(retries.take_newest().is_none());
    }
}
