//! An open-addressing table of buckets: linear probing, no tombstones.

use std::num::NonZeroU32;

use super::fingerprint::{Fingerprint, scale};
use crate::algebra::State;
use crate::clock::Timestamp;

/// Half a cache line: a bucket, or a vacancy where `quota` is `None`.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Slot {
    low: u64,
    high: u32,
    quota: Option<NonZeroU32>,
    state: State,
}

impl Slot {
    const VACANT: Self =
        Self { low: 0, high: 0, quota: None, state: State { value: 0, ts: Timestamp::UNIX_EPOCH } };

    pub(super) fn new(print: Fingerprint, quota: NonZeroU32, state: State) -> Self {
        let (low, high) = print.tag();
        Self { low, high, quota: Some(quota), state }
    }

    /// The numbers that the state counts in; `None` for a vacancy.
    pub(super) const fn quota(&self) -> Option<NonZeroU32> {
        self.quota
    }

    pub(super) const fn state(&self) -> State {
        self.state
    }

    pub(super) const fn tag(&self) -> (u64, u32) {
        (self.low, self.high)
    }

    /// Whether the search for this tag ends here: this is the bucket, or a vacancy.
    const fn ends_search(&self, (low, high): (u64, u32)) -> bool {
        (self.low == low && self.high == high) || self.quota.is_none()
    }

    pub(super) const fn set_state(&mut self, state: State) {
        self.state = state;
    }

    pub(super) const fn update(&mut self, quota: NonZeroU32, state: State) {
        self.quota = Some(quota);
        self.state = state;
    }
}

/// Slots, at most four fifths of them taken.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    taken: usize,
    /// The slots that it takes to hold all that will ever be in here.
    enough: usize,
}

const FIRST_SLOTS: usize = 8;

impl Table {
    /// An empty table that will hold at most this many buckets.
    pub(super) const fn with_max_buckets(buckets: usize) -> Self {
        let enough = buckets.saturating_add(buckets.div_ceil(4)).saturating_add(1);
        Self { slots: Vec::new(), taken: 0, enough }
    }

    pub(super) const fn len(&self) -> usize {
        self.taken
    }

    pub(super) const fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Slot> {
        self.slots.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.quota.is_some())
    }

    /// Where the bucket with this tag is.
    pub(super) fn find(&self, tag: (u64, u32)) -> Option<usize> {
        let home = scale(tag.0, self.slots.len());
        let (before, after) = self.slots.split_at_checked(home)?;
        // From home to the end, then from the start: a vacancy ends the search.
        for (index, slot) in (home..).zip(after) {
            if slot.ends_search(tag) {
                return slot.quota.map(|_| index);
            }
        }
        for (index, slot) in (0..).zip(before) {
            if slot.ends_search(tag) {
                return slot.quota.map(|_| index);
            }
        }
        None
    }

    /// The bucket with this tag, to be changed.
    pub(super) fn find_mut(&mut self, tag: (u64, u32)) -> Option<&mut Slot> {
        let home = scale(tag.0, self.slots.len());
        let (before, after) = self.slots.split_at_mut_checked(home)?;
        for slot in after {
            if slot.ends_search(tag) {
                return Some(slot).filter(|slot| slot.quota.is_some());
            }
        }
        for slot in before {
            if slot.ends_search(tag) {
                return Some(slot).filter(|slot| slot.quota.is_some());
            }
        }
        None
    }

    /// Adds a bucket that is not there yet.
    pub(super) fn insert(&mut self, slot: Slot) {
        if self.taken.saturating_add(1) > four_fifths(self.slots.len()) {
            self.grow();
        }
        self.place(slot);
    }

    fn grow(&mut self) {
        let old = self.slots.len();
        let more = old.saturating_add(old / 2).max(FIRST_SLOTS);
        // Only where requests wait for all of them are there more than were meant to be.
        let new = if old >= self.enough { more } else { more.min(self.enough) };
        self.resize(new.max(old.saturating_add(1)));
    }

    /// Gives back room that is not needed: all of it, or all but twice what is taken.
    pub(super) fn shrink(&mut self) {
        let needed = self.taken.saturating_mul(2);
        if needed < self.slots.len() / 2 {
            self.resize(needed);
        }
    }

    fn resize(&mut self, new: usize) {
        let slots = std::mem::replace(&mut self.slots, vec![Slot::VACANT; new]);
        self.taken = 0;
        for slot in slots.into_iter().filter(|slot| slot.quota.is_some()) {
            self.place(slot);
        }
    }

    /// Puts a bucket into the first vacancy from its home on; there always is one.
    fn place(&mut self, slot: Slot) {
        let home = scale(slot.low, self.slots.len());
        let (before, after) = self.slots.split_at_mut(home);
        if let Some(vacancy) =
            after.iter_mut().chain(before).find(|candidate| candidate.quota.is_none())
        {
            *vacancy = slot;
            self.taken = self.taken.saturating_add(1);
        }
    }

    /// Takes the bucket at `index` out and moves those behind it up, so that no search ends early.
    pub(super) fn remove(&mut self, index: usize) -> Option<Slot> {
        let removed = *self.slots.get(index).filter(|slot| slot.quota.is_some())?;
        let mut hole = index;
        let mut next = self.after(hole);
        while let Some(slot) = self.slots.get(next)
            && slot.quota.is_some()
            && next != index
        {
            // Moving up must not carry a bucket before its home: one between the hole and the
            // bucket.
            let home = scale(slot.low, self.slots.len());
            let stays = match hole < next {
                true => hole < home && home <= next,
                false => hole < home || home <= next,
            };
            if !stays {
                self.set(hole, *slot);
                hole = next;
            }
            next = self.after(next);
        }
        self.set(hole, Slot::VACANT);
        self.taken = self.taken.saturating_sub(1);
        Some(removed)
    }

    fn set(&mut self, index: usize, slot: Slot) {
        if let Some(place) = self.slots.get_mut(index) {
            *place = slot;
        }
    }

    /// The slot behind this one, where the first is behind the last.
    pub(super) fn after(&self, index: usize) -> usize {
        let next = index.saturating_add(1);
        if next >= self.slots.len() { 0 } else { next }
    }
}

/// Above this, searches for what is not there grow long.
const fn four_fifths(slots: usize) -> usize {
    slots.saturating_sub(slots.div_ceil(5))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn slot(low: u64, value: i64) -> Slot {
        let state = State { value, ts: Timestamp::UNIX_EPOCH };
        Slot::new(Fingerprint::new(low, 0), NonZeroU32::MIN, state)
    }

    proptest! {
        /// Homes are drawn from the same few places, so that runs of buckets collide and wrap.
        #[test]
        fn finds_what_a_map_would_find(
            steps in prop::collection::vec((any::<bool>(), 0_u64..40, any::<i64>()), 0..400),
        ) {
            let mut table = Table::with_max_buckets(40);
            let mut model = HashMap::new();
            for (insert, name, value) in steps {
                // The highest bits pick the home: a few homes, one of them at the very end.
                let low = ((name % 5) * (u64::MAX / 4)).wrapping_sub(name / 5);
                let found = table.find((low, 0));
                prop_assert_eq!(found.is_some(), model.contains_key(&low));
                match (insert, found) {
                    (true, None) => {
                        table.insert(slot(low, value));
                        model.insert(low, value);
                    }
                    (false, Some(index)) => {
                        let removed = table.remove(index).unwrap();
                        prop_assert_eq!(Some(removed.state().value), model.remove(&low));
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                for (&low, &value) in &model {
                    let index = table.find((low, 0)).expect("what was put in is found");
                    prop_assert_eq!(table.get(index).unwrap().state().value, value);
                }
            }
        }
    }
}
