//! Gives a slot that has lost its waiter to another one.
//!
//! # Design
//!
//! A free slot goes to the waiter with the largest cost that fits and that then runs earlier. The
//! slot of that waiter is free in turn. With costs in random order, this ends after a few steps. If
//! each waiter costs less than the one before it, each waiter of the queue would be a step. So the
//! number of steps has a [bound](ReassignBudget). When it is used up, the slot is kept as one that
//! fits no waiter.

use super::cost_class::ClassId;
use super::reassign_budget::ReassignBudget;
use super::time_slot::{SlotKey, TimeSlot};
use super::unit_vec::UnitVec;
use super::wait_queue::WaitQueue;

impl WaitQueue {
    /// Reassigns the slot of a waiter that has left this class. That is the last slot of the class,
    /// since those behind the leaver have moved forward.
    pub(super) fn reassign_last(&mut self, class: &ClassId, budget: &mut ReassignBudget) {
        let last = self.classes.get_mut(class).and_then(|class| class.last_slot());
        self.drop_empty(class);
        if let Some(slot) = last {
            self.slots.remove(&slot.key);
            self.reassign(slot, true, budget);
        }
    }

    /// Reassigns a slot, and adds the one that is left over to the free slots.
    ///
    /// A slot can be undone only if no reservation was made after it. Slots are nearly always in
    /// the order of their reservations, so the slots behind this one are newer, and it is moved
    /// without asking the store. Only after a return may a slot behind be *older*. With
    /// `undo_first`, the chain then stops, so that the store is asked to undo this slot before a
    /// waiter gets it.
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
                // This one lies behind the one before, so the loop visits each class once at most.
                Some(freed) => slot = freed,
                None => return,
            }
        }
        self.free.add(slot);
    }

    /// Gives a class a slot and takes its last one instead.
    pub(super) fn exchange(&mut self, slot: TimeSlot, id: &ClassId) -> Option<TimeSlot> {
        let class = self.classes.get_mut(id)?;
        self.slots.insert(slot.key, id.clone());
        let last = class.exchange(slot)?;
        self.slots.remove(&last.key);
        Some(last)
    }

    /// Whether no waiter has a slot that was made after this one. If one has, its reservation has
    /// charged the same buckets, and this slot cannot be undone.
    pub(super) fn is_newest(&self, slot: &TimeSlot) -> bool {
        let last = self.slots.last_key_value();
        let last =
            last.and_then(|(order, class)| self.classes.get(class)?.slots.get_key_value(order));
        last.is_none_or(|(key, grant)| (grant.made.at, *key) < slot.creation_key())
    }

    /// The class to get a slot: the one with the largest cost that fits, if its last waiter then
    /// runs earlier.
    fn receiver(&self, slot: &TimeSlot, budget: &mut ReassignBudget) -> Option<ClassId> {
        let (at, taken) = (slot.key.at(), &slot.grant.taken);
        let gains = |last: &SlotKey| last.at() > at;
        let fits = |cost: &UnitVec| cost.fits(taken) && !cost.is_nothing();
        let mut largest: Option<&ClassId> = None;
        let mut behind = self.slots.iter().rev().take_while(|(order, _)| gains(order));
        // Two searches run side by side, and the first to finish has the answer. Downwards by cost,
        // a class is soon found if many slots lie behind this one. From the last slot backwards,
        // the slots are soon all seen if few lie behind it.
        for (id, class) in self.classes.range(..=ClassId::last(taken.clone())).rev() {
            if id.cost.is_nothing() || !budget.take_look() {
                break;
            }
            if fits(&id.cost) && class.slots.last_key_value().is_some_and(|(last, _)| gains(last)) {
                return Some(id.clone());
            }
            // One slot for each class that is looked at, so the budget bounds this search as well.
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
