//! What becomes of a place that has lost its waiter.

use std::ops::Bound::{Excluded, Unbounded};

use super::line::{Equals, Line};
use super::place::{Order, Place};
use crate::algebra::Units;

impl Line {
    /// Hands a place down the line that has lost its waiter. Returns the one that is left over.
    pub(super) fn hand_on(&mut self, mut from: Order, mut units: Units) -> Option<Place> {
        while let Some((next, smaller)) = self.next_below(from, units) {
            // Those of this cost have moved up as far as here; the smaller one takes what is free.
            let equals = self.costs.get_mut(&units)?;
            let free = equals.places.range(from..next).next_back().copied()?;
            equals.places.remove(&free);
            self.forget_if_unused(units);
            self.places.get_mut(&free)?.units = smaller;
            self.costs.entry(smaller).or_default().places.insert(free);
            (from, units) = (next, smaller);
        }
        let last = self.costs.get_mut(&units)?.places.pop_last();
        self.forget_if_unused(units);
        self.places.remove(&last?)
    }

    /// The first place behind `from` whose waiter has a smaller cost than this, and that cost.
    fn next_below(&self, from: Order, units: Units) -> Option<(Order, Units)> {
        // Of the same instant nobody has anything to gain, nor has who needs nothing.
        let behind = (Excluded(from.last_of_its_instant()), Unbounded);
        let mut line = self.places.range(behind);
        let mut costs = self.costs.range(1.min(units)..units);
        let mut best = None;
        // Either the line is short up to there, or the smaller costs are few: whichever search is
        // over first has the answer.
        loop {
            match costs.next_back() {
                None => return best,
                Some((&cost, equals)) => {
                    let first = equals.places.range(behind).next().map(|&order| (order, cost));
                    best = match (best, first) {
                        (Some(best), Some(first)) => Some(std::cmp::min(best, first)),
                        (best, first) => best.or(first),
                    };
                }
            }
            match line.next() {
                None => return None,
                Some((&order, place)) if (1..units).contains(&place.units) => {
                    return Some((order, place.units));
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn forget_if_unused(&mut self, units: Units) {
        if self.costs.get(&units).is_some_and(Equals::is_unused) {
            self.costs.remove(&units);
        }
    }
}
