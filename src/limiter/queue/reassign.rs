//! What happens to a slot that has lost its waiter.

use super::time_slot::{SlotGrant, SlotKey, TimeSlot};
use super::unit_vec::UnitVec;
use super::wait_queue::WaitQueue;

/// How often what is left over is handed on again. Where many have left, slots are much larger than
/// their waiters, and to go on would move all waiters.
const ROUNDS: usize = 2;

impl WaitQueue {
    /// Hands a slot down the queue that has lost its waiter, and what is left over once more where
    /// it is larger than its last waiter was. Returns what no waiter fits into, or may have.
    pub(super) fn reassign_fully(&mut self, from: SlotKey, cost: UnitVec) -> Option<TimeSlot> {
        let mut left = self.reassign(from, cost)?;
        for _ in 0..ROUNDS {
            let (order, cost) = (left.order, left.grant.used.clone());
            if self.next_below(order, &cost).is_none() {
                break;
            }
            self.add(left);
            left = self.reassign(order, cost)?;
        }
        Some(left)
    }

    /// Hands a slot down the queue that has lost its waiter. Returns the one that is left over.
    pub(super) fn reassign(&mut self, mut from: SlotKey, mut cost: UnitVec) -> Option<TimeSlot> {
        while let Some((next, smaller)) = self.next_below(from, &cost) {
            // Those of this cost have moved up as far as here; the smaller one takes what is free.
            let moved_up = self.by_cost.last_before(&(cost.clone(), next));
            let moved_up = moved_up.filter(|((of, order), ())| *of == cost && *order >= from);
            let free = moved_up?.0.1;
            self.by_cost.remove(&(cost, free));
            self.places.get_mut(&free)?.used = smaller.clone();
            self.by_cost.insert((smaller.clone(), free), ());
            (from, cost) = (next, smaller);
        }
        let last = self.by_cost.last_before(&(cost.clone(), SlotKey::LAST))?;
        let order = last.0.1;
        self.by_cost.remove(&(cost, order));
        let grant = self.places.remove(&order)?;
        // For a later waiter it is as large as it was.
        Some(TimeSlot { order, grant: SlotGrant { used: grant.taken.clone(), ..grant } })
    }

    /// The first slot behind `from` whose waiter has a smaller cost that fits in this, and that
    /// cost.
    fn next_below(&self, from: SlotKey, cost: &UnitVec) -> Option<(SlotKey, UnitVec)> {
        // A waiter of the same instant has nothing to gain, nor has one that needs nothing.
        let behind = from.last_of_its_instant();
        let gains =
            |smaller: &UnitVec| smaller != cost && smaller.fits(cost) && !smaller.is_nothing();
        let mut line = self.places.iter_from(&behind);
        let mut best: Option<(SlotKey, &UnitVec)> = None;
        let mut above = cost;
        // Either the queue is short up to there, or the smaller costs are few: whichever search is
        // over first has the answer.
        loop {
            match self.by_cost.last_before(&(above.clone(), SlotKey::FIRST)) {
                None => return best.map(|(order, smaller)| (order, smaller.clone())),
                Some(((smaller, _), ())) => {
                    if gains(smaller)
                        && let Some(((of, order), ())) =
                            self.by_cost.first_from(&(smaller.clone(), behind))
                        && of == smaller
                        && best.is_none_or(|(first, _)| *order < first)
                    {
                        best = Some((*order, smaller));
                    }
                    above = smaller;
                }
            }
            match line.next() {
                None => return None,
                Some((order, grant)) if gains(&grant.used) => {
                    return Some((*order, grant.used.clone()));
                }
                Some(_) => {}
            }
        }
    }
}
