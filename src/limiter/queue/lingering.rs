//! The queues that are kept for reservations whose answers are on their way.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use super::ledger::lock;

/// Queues `Q` without a waiter that have free slots, while the store was asked for a reservation.
///
/// Such a slot cannot be undone once the store has charged the bucket for the reservation. But if that
/// is given up in turn, both can be, one after the other: so the first is not forgotten meanwhile.
#[derive(Debug)]
pub(super) struct Lingering<Q>(Mutex<LingeringQueues<Q>>);

#[derive(Debug)]
struct LingeringQueues<Q> {
    under_way: usize,
    /// Each of them once; the one that is kept for the longest time first.
    queues: VecDeque<Arc<Q>>,
    /// Their addresses.
    known: HashSet<usize>,
}

/// How many queues are kept. The slots of those before them are spent.
const KEPT: usize = 1_024;

impl<Q> Default for Lingering<Q> {
    fn default() -> Self {
        let (under_way, queues, known) = Default::default();
        Self(Mutex::new(LingeringQueues { under_way, queues, known }))
    }
}

impl<Q> Lingering<Q> {
    /// The store is asked for a reservation.
    pub(super) fn begin(&self) {
        let mut lingering = lock(&self.0);
        lingering.under_way = lingering.under_way.saturating_add(1);
    }

    /// The reservation is held, or refused. Returns the queues that are to be kept no longer.
    pub(super) fn end(&self) -> VecDeque<Arc<Q>> {
        let mut lingering = lock(&self.0);
        lingering.under_way = lingering.under_way.saturating_sub(1);
        match lingering.under_way {
            0 => {
                lingering.known.clear();
                std::mem::take(&mut lingering.queues)
            }
            _ => VecDeque::new(),
        }
    }

    /// Keeps a queue while reservations are on their way. Returns one that is not to be kept: this, if
    /// there is none, or the one that was kept first.
    pub(super) fn keep(&self, queue: &Arc<Q>) -> Option<Arc<Q>> {
        let mut lingering = lock(&self.0);
        if lingering.under_way == 0 {
            return Some(Arc::clone(queue));
        }
        if lingering.known.insert(Arc::as_ptr(queue).addr()) {
            lingering.queues.push_back(Arc::clone(queue));
        }
        if lingering.queues.len() <= KEPT {
            return None;
        }
        let first = lingering.queues.pop_front()?;
        lingering.known.remove(&Arc::as_ptr(&first).addr());
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_linger_while_a_reservation_is_on_its_way() {
        let (lingering, queue) = (Lingering::default(), Arc::new(7));
        assert_eq!(lingering.keep(&queue), Some(Arc::clone(&queue)));
        lingering.begin();
        lingering.begin();
        (0..3).for_each(|_| assert_eq!(lingering.keep(&queue), None));
        assert!(lingering.end().is_empty());
        assert_eq!(lingering.end(), [Arc::clone(&queue)]);
        lingering.begin();
        assert_eq!(lingering.keep(&queue), None);
        assert_eq!(lingering.end().len(), 1);
    }

    #[test]
    fn the_queues_that_linger_have_a_bound() {
        let lingering = Lingering::default();
        lingering.begin();
        let queues: Vec<_> = (0..KEPT + 10).map(Arc::new).collect();
        let dropped: Vec<_> = queues.iter().filter_map(|queue| lingering.keep(queue)).collect();
        assert_eq!(dropped, queues[..10]);
        assert_eq!(lingering.end(), &queues[10..]);
    }
}
