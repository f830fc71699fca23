//! Slots that no waiter fits into.

use std::collections::BTreeMap;

use super::local_instant::{LocalInstant, StoreClock};
use super::time_slot::{SlotGrant, SlotKey, TimeSlot};
use super::unit_vec::UnitVec;

/// How many are kept for later waiters.
const KEPT: usize = 64;

/// Free slots, which are undone one after another from the last one on: only of the last
/// reservation on a bucket can it be true that nothing was taken since.
///
/// A slot that cannot be undone is kept: a later waiter may fit in, and once a later slot was
/// undone, this one may be as well.
#[derive(Debug, Default)]
pub(super) struct FreeSlots {
    places: BTreeMap<SlotKey, SlotGrant>,
    /// Whether the store was asked to undo one and has not answered.
    undoing: bool,
    /// Whether the last of them could not be undone.
    stuck: bool,
}

impl FreeSlots {
    pub(super) const fn is_undoing(&self) -> bool {
        self.undoing
    }

    pub(super) fn add(&mut self, place: TimeSlot) {
        if self.places.last_key_value().is_none_or(|(last, _)| *last < place.order) {
            self.stuck = false;
        }
        self.places.insert(place.order, place.grant);
        if self.places.len() > KEPT {
            self.places.pop_first();
        }
    }

    /// The next slot to be undone, if it is time for one.
    pub(super) fn next_to_undo(&mut self) -> Option<TimeSlot> {
        if self.undoing || self.stuck {
            return None;
        }
        let (order, grant) = self.places.pop_last()?;
        self.undoing = true;
        Some(TimeSlot { order, grant })
    }

    /// Hears that the store has undone a slot, or that what became of it is not known.
    pub(super) const fn undone(&mut self) {
        self.undoing = false;
    }

    /// Keeps a slot that could not be undone, if its instant is still to come.
    pub(super) fn keep(&mut self, place: TimeSlot, clock: &StoreClock, now: LocalInstant) {
        let order = place.order;
        if clock.moment(order.at()) > now {
            self.add(place);
        }
        // One behind it may have become free meanwhile, and was not tried.
        self.stuck = self.places.last_key_value().is_none_or(|(last, _)| *last <= order);
    }

    /// Takes out a slot before `own` that is large enough for this.
    pub(super) fn better(
        &mut self,
        own: SlotKey,
        used: &UnitVec,
        clock: &StoreClock,
        now: LocalInstant,
    ) -> Option<TimeSlot> {
        if self.places.is_empty() || used.is_nothing() {
            return None;
        }
        self.places.retain(|order, _| clock.moment(order.at()) > now);
        let before = self.places.range(..own);
        let mut fitting = before.filter(|(_, grant)| used.fits(&grant.taken));
        let order = *fitting.next()?.0;
        let grant = self.places.remove(&order)?;
        Some(TimeSlot { order, grant })
    }
}
