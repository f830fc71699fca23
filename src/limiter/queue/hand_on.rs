//! What becomes of a place that has lost its waiter.

use super::line::Line;
use super::place::{Grant, Order, Place};
use crate::algebra::Units;

impl Line {
    /// Hands a place down the line that has lost its waiter. Returns the one that is left over.
    pub(super) fn hand_on(&mut self, mut from: Order, mut cost: Units) -> Option<Place> {
        while let Some((next, smaller)) = self.next_below(from, cost) {
            // Those of this cost have moved up as far as here; the smaller one takes what is free.
            let before = self.by_cost.last_before(&(cost, next));
            let free = before.map(|&((_, order), ())| order).filter(|order| *order >= from)?;
            self.by_cost.remove(&(cost, free));
            self.places.get_mut(&free)?.used = smaller;
            self.by_cost.insert((smaller, free), ());
            (from, cost) = (next, smaller);
        }
        let last = self.by_cost.last_before(&(cost, Order::LAST))?;
        let order = last.0.1;
        self.by_cost.remove(&(cost, order));
        let grant = self.places.remove(&order)?;
        // For whoever comes later it is as large as it was.
        Some(Place { order, grant: Grant { used: grant.taken, ..grant } })
    }

    /// The first place behind `from` whose waiter has a smaller cost than this, and that cost.
    fn next_below(&self, from: Order, cost: Units) -> Option<(Order, Units)> {
        // Of the same instant nobody has anything to gain, nor has who needs nothing.
        let behind = from.last_of_its_instant();
        let mut line = self.places.iter_from(&behind);
        let mut best = None;
        let mut above = cost;
        // Either the line is short up to there, or the smaller costs are few: whichever search is
        // over first has the answer.
        loop {
            let below = self.by_cost.last_before(&(above, Order::FIRST)).map(|&((of, _), ())| of);
            match below.filter(|of| *of > 0) {
                None => return best,
                Some(smaller) => {
                    let first = self.by_cost.first_from(&(smaller, behind));
                    let first = first.filter(|((of, _), ())| *of == smaller);
                    let first = first.map(|&((_, order), ())| (order, smaller));
                    best = match (best, first) {
                        (Some(best), Some(first)) => Some(std::cmp::min(best, first)),
                        (best, first) => best.or(first),
                    };
                    above = smaller;
                }
            }
            match line.next() {
                None => return None,
                Some((order, grant)) if (1..cost).contains(&grant.used) => {
                    return Some((*order, grant.used));
                }
                Some(_) => {}
            }
        }
    }
}
