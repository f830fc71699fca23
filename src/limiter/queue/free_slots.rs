//! Slots that no waiter uses.

use std::collections::BTreeMap;

use super::local_instant::{LocalInstant, StoreClock};
use super::retries::RetryKey;
use super::time_slot::{CreationKey, SlotKey, TimeSlot};
use super::unit_vec::UnitVec;

/// How many are kept: as many as wait in a layer's queue if nothing else is said, since all of
/// these may leave while the store is asked about the first one.
const MAX_SLOTS: usize = 1_000;

/// How many of them are offered at once when one cannot be undone.
const MAX_OFFERED: usize = 64;

/// For how many returns on their way one slot waits. In a busy process there is always another one,
/// and each asks the store once more about the slots of all queues on the bucket.
const MAX_RETRIES: u8 = 4;

/// Free slots in the order in which they were made. They are undone one after another from the
/// last one on: of the others it is known that the bucket was charged since.
///
/// A slot that cannot be undone is kept: a newcomer may fit in, and once a later one was undone,
/// this one may be as well.
#[derive(Debug, Default)]
pub(super) struct FreeSlots {
    slots: BTreeMap<CreationKey, TimeSlot>,
    /// Whether the store was asked to undo one and has not answered.
    undoing: bool,
    /// The slot that could not be undone: nor can those before it, until there is a reason to ask
    /// again.
    refused: Option<CreationKey>,
    /// Whether that may be for a return on its way, which the store had not carried out yet.
    waits_for_return: bool,
    /// The slot that was last refused when returns were on their way, and how often.
    awaited: Option<(CreationKey, u8)>,
}

impl FreeSlots {
    pub(super) const fn is_undoing(&self) -> bool {
        self.undoing
    }

    /// When the slot was made that would be undone first, if there is one.
    pub(super) fn newest(&self) -> Option<RetryKey> {
        self.slots.last_key_value().map(|(_, slot)| RetryKey::new(&slot.grant.made))
    }

    pub(super) fn add(&mut self, slot: TimeSlot) {
        self.slots.insert(slot.creation_key(), slot);
        if self.slots.len() > MAX_SLOTS {
            self.slots.pop_first();
        }
    }

    /// Whether this would be the next slot to be undone.
    pub(super) fn undoes_next(&self, slot: &TimeSlot) -> bool {
        let own = slot.creation_key();
        let is_refused = self.refused.is_some_and(|refused| own <= refused);
        !is_refused && self.slots.last_key_value().is_none_or(|(last, _)| *last < own)
    }

    /// The next slot to be undone, if it is time for one.
    pub(super) fn next_to_undo(&mut self) -> Option<TimeSlot> {
        let last = *self.slots.last_key_value()?.0;
        if self.undoing || self.refused.is_some_and(|refused| last <= refused) {
            return None;
        }
        self.undoing = true;
        self.slots.remove(&last)
    }

    /// Hears that the store has undone a slot, or that what became of it is not known.
    pub(super) const fn record_undone(&mut self) {
        self.undoing = false;
        self.refused = None;
    }

    /// Hears that a slot could not be undone. Returns the first of those that are free and still to
    /// come, to be offered once more.
    pub(super) fn record_refusal(
        &mut self,
        slot: TimeSlot,
        is_to_come: impl Fn(&TimeSlot) -> bool,
    ) -> Vec<TimeSlot> {
        self.undoing = false;
        self.refused = Some(slot.creation_key());
        self.add(slot);
        let to_come = self.slots.iter().filter(|(_, slot)| is_to_come(slot));
        let offered: Vec<_> = to_come.map(|(made, _)| *made).take(MAX_OFFERED).collect();
        offered.iter().filter_map(|made| self.slots.remove(made)).collect()
    }

    /// Tries once more what could not be undone.
    pub(super) const fn retry(&mut self) {
        self.refused = None;
        self.waits_for_return = false;
    }

    /// Tries the slot that was refused when the returns on their way are there, unless that was in
    /// vain before. Returns whether it is to be tried.
    pub(super) fn retry_on_return(&mut self) -> bool {
        let before = self.awaited.filter(|(slot, _)| Some(*slot) == self.refused);
        let times = before.map_or(1, |(_, times)| times.saturating_add(1));
        self.awaited = self.refused.map(|slot| (slot, times));
        self.waits_for_return = times <= MAX_RETRIES;
        self.waits_for_return
    }

    /// Whether there is a slot to be tried when returns are there.
    pub(super) fn waits_for_return(&self) -> bool {
        self.waits_for_return && !self.slots.is_empty()
    }

    /// Takes out the first slot before `own` that is large enough for this and still to come.
    pub(super) fn take_before(
        &mut self,
        own: SlotKey,
        cost: &UnitVec,
        clock: &StoreClock,
        now: LocalInstant,
    ) -> Option<TimeSlot> {
        if self.slots.is_empty() || cost.is_nothing() {
            return None;
        }
        let on_offer = self.slots.iter().filter(|(_, slot)| {
            slot.key < own && clock.instant_of(slot.key.at()) > now && cost.fits(&slot.grant.taken)
        });
        let key = *on_offer.min_by_key(|(_, slot)| (&slot.grant.taken, slot.key))?.0;
        self.slots.remove(&key)
    }
}
