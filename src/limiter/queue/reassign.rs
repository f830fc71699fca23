//! What happens to a slot that has lost its waiter.
//!
//! # Design
//!
//! A free slot goes to the largest cost that fits in it, of a waiter that it makes run earlier, and
//! the slot of that one is free in turn. With costs in any order, that ends after a few steps;
//! where each waiter costs less than the one before, it is a step for every waiter in the queue. So
//! the steps that are done at once have a [bound](ReassignBudget), and what is left of a slot then
//! is kept like one that fits no waiter.

use super::cost_class::ClassId;
use super::reassign_budget::ReassignBudget;
use super::time_slot::{SlotKey, TimeSlot};
use super::unit_vec::UnitVec;
use super::wait_queue::WaitQueue;

impl WaitQueue {
    /// Gives up the slot of a waiter of this class that has left: the last one of its class, as
    /// those behind it have moved forward.
    pub(super) fn reassign_last(&mut self, class: &ClassId, budget: &mut ReassignBudget) {
        let last = self.classes.get_mut(class).and_then(|class| class.last_slot());
        self.drop_empty(class);
        if let Some(slot) = last {
            self.slots.remove(&slot.key);
            self.reassign(slot, true, budget);
        }
    }

    /// Hands a slot on, and keeps what is left over in the end.
    ///
    /// A slot can be undone only if no reservation was made after it. Slots come in the order of
    /// their reservations, so those behind are handed forward at once. Only where units were
    /// returned may one behind be older; with `undo_first`, the store is asked before that is
    /// moved.
    pub(super) fn reassign(
        &mut self,
        mut slot: TimeSlot,
        undo_first: bool,
        budget: &mut ReassignBudget,
    ) {
        while let Some(class) = self.receiver(&slot, budget) {
            let last = self.classes.get(&class).and_then(|class| class.slots.last_key_value());
            let is_newer =
                last.is_some_and(|(order, last)| (last.made.at, *order) < slot.creation_key());
            let is_asked = undo_first && is_newer && self.free.undoes_next(&slot);
            if (is_asked && self.is_newest(&slot)) || !budget.take_hop() {
                break;
            }
            match self.exchange(slot, &class) {
                Some(freed) => slot = freed,
                None => return,
            }
        }
        self.free.add(slot);
    }

    /// Gives a class a slot, and takes its last one in place of it.
    pub(super) fn exchange(&mut self, slot: TimeSlot, id: &ClassId) -> Option<TimeSlot> {
        let class = self.classes.get_mut(id)?;
        self.slots.insert(slot.key, id.clone());
        let last = class.exchange(slot)?;
        self.slots.remove(&last.key);
        Some(last)
    }

    /// Whether a slot may be the last that was made, as far as is known here. Another waiter's that
    /// was made after it has charged the same buckets.
    pub(super) fn is_newest(&self, slot: &TimeSlot) -> bool {
        let last = self.slots.last_key_value();
        let last =
            last.and_then(|(order, class)| self.classes.get(class)?.slots.get_key_value(order));
        last.is_none_or(|(key, grant)| (grant.made.at, *key) < slot.creation_key())
    }

    /// The largest cost that fits in a slot, of a waiter that it makes run earlier.
    fn receiver(&self, slot: &TimeSlot, budget: &mut ReassignBudget) -> Option<ClassId> {
        let (at, taken) = (slot.key.at(), &slot.grant.taken);
        let gains = |last: &SlotKey| last.at() > at;
        let fits = |cost: &UnitVec| cost.fits(taken) && !cost.is_nothing();
        let mut largest: Option<&ClassId> = None;
        let mut behind = self.slots.iter().rev().take_while(|(order, _)| gains(order));
        // Either many slots lie behind, and one of the first classes has one of them; or few do,
        // and are looked through: whichever search is over first has the answer.
        for (id, class) in self.classes.range(..=ClassId::last(taken.clone())).rev() {
            if id.cost.is_nothing() || !budget.take_look() {
                break;
            }
            if fits(&id.cost) && class.slots.last_key_value().is_some_and(|(last, _)| gains(last)) {
                return Some(id.clone());
            }
            match behind.next() {
                Some((_, id)) if fits(&id.cost) && largest.is_none_or(|most| most < id) => {
                    largest = Some(id);
                }
                Some(_) => {}
                None => break,
            }
        }
        largest.cloned()
    }

    pub(super) fn drop_empty(&mut self, id: &ClassId) {
        if self.classes.get(id).is_some_and(|class| class.is_empty()) {
            self.classes.remove(id);
        }
    }
}
