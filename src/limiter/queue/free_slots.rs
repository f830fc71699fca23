//! The slots of a queue that no waiter has.

use std::collections::{BTreeMap, BTreeSet};

use super::time_slot::{Cost, CreationKey, SlotKey, TimeSlot};

/// How many free slots are kept. A layer's queue has at most 1,000 waiters unless set, and all of
/// them may leave while the store is asked about the slot of the first.
const MAX_SLOTS: usize = 1_000;

/// How often one slot is tried again after a pending return. In a busy process some return is
/// always pending, and each of these tries is one more call of the store.
const MAX_RETRIES: u8 = 4;

/// Free slots. The one that was reserved last is undone first: as long as it stands, it is a charge
/// that came after all others, and none of them can be undone.
#[derive(Debug, Default)]
pub(super) struct FreeSlots {
    /// Each with whether it is on offer: it became free before its instant.
    slots: BTreeMap<SlotKey, (TimeSlot, bool)>,
    /// The same slots in the order in which they were reserved.
    made: BTreeSet<CreationKey>,
    /// Whether the store was asked to undo a slot and has not answered. There is one such call at a
    /// time: a store that answers late may carry out several in any order, and refuse all but one.
    is_undoing: bool,
    /// The slot that the store refused to undo. Neither it nor an older one is tried until
    /// something has changed.
    refused: Option<CreationKey>,
    /// The slot that was last refused while returns were pending, and how often. The store may have
    /// refused only because it had not carried out such a return yet.
    awaited: Option<(CreationKey, u8)>,
    /// The slot by which the ledgers know this queue.
    pub(super) kept_by: Option<CreationKey>,
}

impl FreeSlots {
    /// When the newest one was reserved. That one would be undone first.
    pub(super) fn newest(&self) -> Option<CreationKey> {
        self.made.last().copied()
    }

    /// Those that a waiter may still use, in the order of their instants.
    pub(super) fn on_offer(&self) -> impl Iterator<Item = &TimeSlot> {
        self.slots.values().filter(|(_, is_on_offer)| *is_on_offer).map(|(slot, _)| slot)
    }

    /// The first one, on offer or not.
    pub(super) fn first(&self) -> Option<SlotKey> {
        self.slots.keys().next().copied()
    }

    pub(super) fn add(&mut self, slot: TimeSlot, is_on_offer: bool) {
        self.made.insert(slot.creation_key());
        self.slots.insert(slot.key, (slot, is_on_offer));
        if self.slots.len() > MAX_SLOTS
            && let Some((_, oldest)) = self.made.first().copied()
        {
            // It would be the last to be undone. It is spent: the bucket keeps its debt.
            self.take(oldest);
        }
    }

    /// Takes one out. Returns it, and whether it was on offer.
    pub(super) fn take(&mut self, key: SlotKey) -> Option<(TimeSlot, bool)> {
        let taken = self.slots.remove(&key)?;
        self.made.remove(&taken.0.creation_key());
        Some(taken)
    }

    /// Takes out the first one on offer before `own` that was made for the same cost.
    pub(super) fn take_before(&mut self, own: SlotKey, cost: &Cost) -> Option<TimeSlot> {
        let found = {
            let mut before = self.on_offer().take_while(|slot| slot.key < own);
            before.find(|slot| slot.cost() == *cost)?.key
        };
        self.take(found).map(|(slot, _)| slot)
    }

    /// Takes out the slot to undo next, unless a call is pending or the store would refuse.
    pub(super) fn next_to_undo(&mut self) -> Option<TimeSlot> {
        let newest = self.newest()?;
        // What charged the bucket after the refused slot was made came after all older ones as
        // well.
        if self.is_undoing || self.refused.is_some_and(|refused| newest <= refused) {
            return None;
        }
        // Set before the caller unlocks the queue. From here on the slot is with the caller alone,
        // which must record an answer: without one, no slot of this queue is ever undone again.
        self.is_undoing = true;
        self.take(newest.1).map(|(slot, _)| slot)
    }

    /// Records that the store has undone a slot, or that its answer was lost. In the second case
    /// the slot counts as spent, since it may have been undone.
    pub(super) const fn record_undone(&mut self) {
        self.is_undoing = false;
        // The undone slot was a charge itself. Older slots that were refused because of it may be
        // next.
        self.refused = None;
    }

    /// Records that the store refused to undo a slot.
    pub(super) const fn record_refusal(&mut self, slot: CreationKey) {
        self.is_undoing = false;
        self.refused = Some(slot);
    }

    /// Lets the refused slots be tried again.
    pub(super) const fn retry(&mut self) {
        self.refused = None;
    }

    /// Whether the refused slot is to be tried again once the pending returns are answered: not if
    /// that was in vain `MAX_RETRIES` times.
    pub(super) fn awaits_return(&mut self) -> bool {
        let before = self.awaited.filter(|(slot, _)| Some(*slot) == self.refused);
        let times = before.map_or(1, |(_, times)| times.saturating_add(1));
        // Counted for each slot apart, by its creation: another slot begins at one again.
        self.awaited = self.refused.map(|slot| (slot, times));
        times <= MAX_RETRIES
    }
}
