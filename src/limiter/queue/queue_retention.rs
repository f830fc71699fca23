//! The queues that are kept for reservations whose answers are on their way.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use super::ledger::lock;

/// Queues `Q` without a waiter that have free slots, while the store was asked for a reservation.
///
/// Such a slot cannot be undone once the store has charged the bucket for the reservation. But if that
/// is given up in turn, both can be, one after the other: so the first is not forgotten meanwhile.
#[derive(Debug)]
pub(super) struct QueueRetention<Q>(Mutex<RetainedQueues<Q>>);

#[derive(Debug)]
struct RetainedQueues<Q> {
    pending: usize,
    /// Each of them once; the one that is kept for the longest time first.
    queues: VecDeque<Arc<Q>>,
    /// Their addresses.
    known: HashSet<usize>,
}

/// How many queues are kept. The slots of those before them are spent.
const MAX_QUEUES: usize = 1_024;

impl<Q> Default for QueueRetention<Q> {
    fn default() -> Self {
        let (pending, queues, known) = Default::default();
        Self(Mutex::new(RetainedQueues { pending, queues, known }))
    }
}

impl<Q> QueueRetention<Q> {
    /// The store is asked for a reservation.
    pub(super) fn begin(&self) {
        let mut retention = lock(&self.0);
        retention.pending = retention.pending.saturating_add(1);
    }

    /// The reservation is held, or refused. Returns the queues that are to be kept no longer.
    pub(super) fn end(&self) -> VecDeque<Arc<Q>> {
        let mut retention = lock(&self.0);
        retention.pending = retention.pending.saturating_sub(1);
        match retention.pending {
            0 => {
                retention.known.clear();
                std::mem::take(&mut retention.queues)
            }
            _ => VecDeque::new(),
        }
    }

    /// Keeps a queue while reservations are on their way. Returns one that is not to be kept: this, if
    /// there is none, or the one that was kept first.
    pub(super) fn keep(&self, queue: &Arc<Q>) -> Option<Arc<Q>> {
        let mut retention = lock(&self.0);
        if retention.pending == 0 {
            return Some(Arc::clone(queue));
        }
        if retention.known.insert(Arc::as_ptr(queue).addr()) {
            retention.queues.push_back(Arc::clone(queue));
        }
        if retention.queues.len() <= MAX_QUEUES {
            return None;
        }
        let first = retention.queues.pop_front()?;
        retention.known.remove(&Arc::as_ptr(&first).addr());
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_linger_while_a_reservation_is_on_its_way() {
        let (retention, queue) = (QueueRetention::default(), Arc::new(7));
        assert_eq!(retention.keep(&queue), Some(Arc::clone(&queue)));
        retention.begin();
        retention.begin();
        (0..3).for_each(|_| assert_eq!(retention.keep(&queue), None));
        assert!(retention.end().is_empty());
        assert_eq!(retention.end(), [Arc::clone(&queue)]);
        retention.begin();
        assert_eq!(retention.keep(&queue), None);
        assert_eq!(retention.end().len(), 1);
    }

    #[test]
    fn the_queues_that_linger_have_a_bound() {
        let retention = QueueRetention::default();
        retention.begin();
        let queues: Vec<_> = (0..MAX_QUEUES + 10).map(Arc::new).collect();
        let dropped: Vec<_> = queues.iter().filter_map(|queue| retention.keep(queue)).collect();
        assert_eq!(dropped, queues[..10]);
        assert_eq!(retention.end(), &queues[10..]);
    }
}
