//! The slots of a queue that no waiter uses.

use std::collections::BTreeMap;

use super::local_instant::{LocalInstant, StoreClock};
use super::retries::RetryKey;
use super::time_slot::{CreationKey, SlotKey, TimeSlot};
use super::unit_vec::UnitVec;

/// How many free slots are kept. A layer's queue has at most 1,000 waiters unless set, and all of
/// them may leave while the store is asked about the slot of the first.
const MAX_SLOTS: usize = 1_000;

/// How many free slots are offered to the waiters at once when one of them cannot be undone.
const MAX_OFFERED: usize = 64;

/// How often one slot is tried again after a pending return. In a busy process some return is
/// always pending, and each of these tries is one more call of the store.
const MAX_RETRIES: u8 = 4;

/// Free slots in the order in which they were reserved. The newest is undone first: as long as it
/// stands, it is a charge that came after all others, and none of them can be undone.
///
/// A slot that cannot be undone is kept. A newcomer may use it, and it can be undone later if the
/// slot after it is.
#[derive(Debug, Default)]
pub(super) struct FreeSlots {
    slots: BTreeMap<CreationKey, TimeSlot>,
    /// Whether the store was asked to undo a slot and has not answered. There is one such call at a
    /// time: a store that answers late may carry out several in any order, and refuse all but one.
    undoing: bool,
    /// The slot that the store refused to undo. Neither it nor an older one is tried until
    /// something has changed.
    refused: Option<CreationKey>,
    /// Whether a pending return may be the reason: this process counted it, but the store had not
    /// carried it out yet.
    waits_for_return: bool,
    /// The slot that was last refused while returns were pending, and how often.
    awaited: Option<(CreationKey, u8)>,
}

impl FreeSlots {
    pub(super) const fn is_undoing(&self) -> bool {
        self.undoing
    }

    /// When the newest free slot was reserved. That one would be undone first.
    pub(super) fn newest(&self) -> Option<RetryKey> {
        self.slots.last_key_value().map(|(_, slot)| RetryKey::new(&slot.grant.made))
    }

    pub(super) fn add(&mut self, slot: TimeSlot) {
        self.slots.insert(slot.creation_key(), slot);
        if self.slots.len() > MAX_SLOTS {
            // The oldest would be the last to be undone. It is spent: the bucket keeps its debt.
            self.slots.pop_first();
        }
    }

    /// Whether this slot, if it were free, would be the next one to be undone.
    pub(super) fn undoes_next(&self, slot: &TimeSlot) -> bool {
        let own = slot.creation_key();
        // What charged the bucket after the refused slot was made came after all older ones as
        // well.
        let is_refused = self.refused.is_some_and(|refused| own <= refused);
        !is_refused && self.slots.last_key_value().is_none_or(|(last, _)| *last < own)
    }

    /// Takes out the slot to undo next, unless a call is pending or the store would refuse.
    pub(super) fn next_to_undo(&mut self) -> Option<TimeSlot> {
        let last = *self.slots.last_key_value()?.0;
        if self.undoing || self.refused.is_some_and(|refused| last <= refused) {
            return None;
        }
        // Set before the caller unlocks the queue. From here on the slot is with the caller alone,
        // which must record an answer: without one, no slot of this queue is ever undone again.
        self.undoing = true;
        self.slots.remove(&last)
    }

    /// Records that the store has undone a slot, or that its answer was lost. In the second case
    /// the slot counts as spent, since it may have been undone.
    pub(super) const fn record_undone(&mut self) {
        self.undoing = false;
        // The undone slot was a charge itself. Older slots that were refused because of it may be
        // next.
        self.refused = None;
    }

    /// Records that the store refused to undo a slot. Takes out the first free slots with
    /// instants still to come, so that they can be offered to the waiters.
    pub(super) fn record_refusal(
        &mut self,
        slot: TimeSlot,
        is_to_come: impl Fn(&TimeSlot) -> bool,
    ) -> Vec<TimeSlot> {
        self.undoing = false;
        self.refused = Some(slot.creation_key());
        self.add(slot);
        // Those in the past stay: no waiter can use them, but they can still be undone if the slots
        // after them are.
        let to_come = self.slots.iter().filter(|(_, slot)| is_to_come(slot));
        let offered: Vec<_> = to_come.map(|(made, _)| *made).take(MAX_OFFERED).collect();
        offered.iter().filter_map(|made| self.slots.remove(made)).collect()
    }

    /// Lets the refused slots be tried again.
    pub(super) const fn retry(&mut self) {
        self.refused = None;
        self.waits_for_return = false;
    }

    /// Lets the refused slot be tried again once the pending returns are answered. Returns whether
    /// it will be; not if that was in vain `MAX_RETRIES` times.
    pub(super) fn retry_on_return(&mut self) -> bool {
        let before = self.awaited.filter(|(slot, _)| Some(*slot) == self.refused);
        let times = before.map_or(1, |(_, times)| times.saturating_add(1));
        // Counted for each slot apart, by its creation: another slot begins at one again.
        self.awaited = self.refused.map(|slot| (slot, times));
        self.waits_for_return = times <= MAX_RETRIES;
        self.waits_for_return
    }

    /// Whether a slot is to be tried once pending returns are answered.
    pub(super) fn waits_for_return(&self) -> bool {
        self.waits_for_return && !self.slots.is_empty()
    }

    /// Takes out the smallest free slot before `own` that covers `cost` and is still
    /// to come.
    pub(super) fn take_before(
        &mut self,
        own: SlotKey,
        cost: &UnitVec,
        clock: &StoreClock,
        now: LocalInstant,
    ) -> Option<TimeSlot> {
        // A cost of zero would swallow a whole slot.
        if self.slots.is_empty() || cost.is_nothing() {
            return None;
        }
        let on_offer = self.slots.iter().filter(|(_, slot)| {
            // A slot whose instant has passed fits no newcomer: its work would run beside the work
            // of the present slots, more than the bucket gained. One behind `own` would make it
            // late.
            slot.key < own && clock.instant_of(slot.key.at()) > now && cost.fits(&slot.grant.taken)
        });
        let key = *on_offer.min_by_key(|(_, slot)| (&slot.grant.taken, slot.key))?.0;
        self.slots.remove(&key)
    }
}
