//! What happens to a slot that has lost its waiter.

use super::time_slot::{SlotKey, TimeSlot};
use super::unit_vec::UnitVec;
use super::wait_queue::WaitQueue;

impl WaitQueue {
    /// Gives up the slot of a waiter of this cost that has left: the last one of its class, as those
    /// behind it have moved forward.
    pub(super) fn give_up_last(&mut self, cost: &UnitVec) {
        let last = self.classes.get_mut(cost).and_then(|class| class.last_slot());
        self.drop_empty(cost);
        if let Some(slot) = last {
            self.slots.remove(&slot.order);
            self.give_up(slot, true);
        }
    }

    /// Hands a slot on, and keeps what is left over in the end.
    ///
    /// A slot can be undone only if no reservation was made after it. Slots come in the order of
    /// their reservations, so those behind are handed forward at once. Only where units were
    /// returned may one behind be older; with `undo_first`, the store is asked before that is moved.
    pub(super) fn give_up(&mut self, mut slot: TimeSlot, undo_first: bool) {
        while let Some(cost) = self.receiver(&slot) {
            let last = self.classes.get(&cost).and_then(|class| class.slots.last_key_value());
            let is_newer =
                last.is_some_and(|(order, last)| (last.made.at, *order) < slot.made_order());
            if undo_first && is_newer && self.free.undoes_next(&slot) {
                break;
            }
            match self.exchange(slot, &cost) {
                Some(freed) => slot = freed,
                None => return,
            }
        }
        self.free.add(slot);
    }

    /// Gives a class a slot, and takes its last one in place of it.
    pub(super) fn exchange(&mut self, slot: TimeSlot, cost: &UnitVec) -> Option<TimeSlot> {
        let class = self.classes.get_mut(cost)?;
        self.slots.insert(slot.order, cost.clone());
        let last = class.exchange(slot)?;
        self.slots.remove(&last.order);
        Some(last)
    }

    /// The largest cost that fits in a slot, of a waiter that it makes run earlier.
    fn receiver(&self, slot: &TimeSlot) -> Option<UnitVec> {
        let (at, taken) = (slot.order.at(), &slot.grant.taken);
        let gains = |last: &SlotKey| last.at() > at;
        let mut largest: Option<&UnitVec> = None;
        let mut behind = self.slots.iter().rev().take_while(|(order, _)| gains(order));
        // Either many slots lie behind, and one of the first classes has one of them; or few do,
        // and are looked through: whichever search is over first has the answer.
        for (cost, class) in self.classes.range(..=taken).rev() {
            if cost.is_nothing() {
                break;
            }
            if cost.fits(taken) && class.slots.last_key_value().is_some_and(|(last, _)| gains(last))
            {
                return Some(cost.clone());
            }
            match behind.next() {
                Some((_, cost)) if cost.fits(taken) && largest.is_none_or(|most| most < cost) => {
                    largest = Some(cost);
                }
                Some(_) => {}
                None => return largest.filter(|cost| !cost.is_nothing()).cloned(),
            }
        }
        None
    }

    pub(super) fn drop_empty(&mut self, cost: &UnitVec) {
        if self.classes.get(cost).is_some_and(|class| class.is_empty()) {
            self.classes.remove(cost);
        }
    }
}
