//! Keeps queues without waiters while an answer of the store is pending.
//!
//! # Design
//!
//! A queue with free slots and no waiter is normally forgotten, and its slots are spent. While the
//! store was asked for another reservation on the same bucket, that would lose tokens:
//!
//! ```text
//! slot 1 is free      the store refuses to undo it: it has already charged the bucket for slot 2
//! slot 2 is answered  its caller has gone, so slot 2 is given up and undone
//! slot 1              is now the last charge of the bucket, and can be undone as well
//! ```
//!
//! So the queue of slot 1 is kept until no answer is pending.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use super::ledger::lock;

/// Queues `Q` without waiters that have free slots, kept while a reservation is pending.
#[derive(Debug)]
pub(super) struct QueueRetention<Q>(Mutex<RetainedQueues<Q>>);

#[derive(Debug)]
struct RetainedQueues<Q> {
    /// How many reservations the store has not answered.
    pending: usize,
    /// Each queue once, in the order in which they were first kept.
    queues: VecDeque<Arc<Q>>,
    /// The addresses of these queues, which no other queue has while they are kept.
    known: HashSet<usize>,
}

/// How many queues are kept. Beyond that, the oldest is forgotten and its slots are spent.
const MAX_QUEUES: usize = 1_024;

impl<Q> Default for QueueRetention<Q> {
    fn default() -> Self {
        let (pending, queues, known) = Default::default();
        Self(Mutex::new(RetainedQueues { pending, queues, known }))
    }
}

impl<Q> QueueRetention<Q> {
    /// Counts a reservation that the store is asked for.
    pub(super) fn begin(&self) {
        let mut retention = lock(&self.0);
        retention.pending = retention.pending.saturating_add(1);
    }

    /// Counts a reservation as answered. Returns the queues to forget, if it was the last one.
    pub(super) fn end(&self) -> VecDeque<Arc<Q>> {
        let mut retention = lock(&self.0);
        retention.pending = retention.pending.saturating_sub(1);
        match retention.pending {
            // The store has answered all reservations. What it refused to undo until now, it would
            // refuse again.
            0 => {
                retention.known.clear();
                std::mem::take(&mut retention.queues)
            }
            _ => VecDeque::new(),
        }
    }

    /// Keeps a queue while a reservation is pending. Returns a queue to forget: this one if none is
    /// pending, or the oldest one if there are too many.
    pub(super) fn keep(&self, queue: &Arc<Q>) -> Option<Arc<Q>> {
        let mut retention = lock(&self.0);
        // A reservation that begins after this check is no reason to keep the queue: the store had
        // refused to undo the slots before it was asked for that reservation.
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
    fn queues_are_kept_while_a_reservation_is_pending() {
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
    fn the_number_of_kept_queues_has_a_bound() {
        let retention = QueueRetention::default();
        retention.begin();
        let queues: Vec<_> = (0..MAX_QUEUES + 10).map(Arc::new).collect();
        let dropped: Vec<_> = queues.iter().filter_map(|queue| retention.keep(queue)).collect();
        assert_eq!(dropped, queues[..10]);
        assert_eq!(retention.end(), &queues[10..]);
    }
}
