//! An open-addressing hash table of buckets: linear probing, without tombstones.
//!
//! # Design
//!
//! A bucket's *home* is the slot that its hash picks. A bucket is in its home or in the first slot
//! after it that was vacant; the slot after the last is the first. Invariant: **no slot between a
//! bucket's home and the bucket is vacant.** So a search starts at the home and ends at the bucket
//! or at the first vacancy.
//!
//! A removal restores the invariant at once, by moving later buckets up into the hole (backward
//! shift, Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm R). There are no
//! tombstones, so searches do not get longer as buckets come and go.
//!
//! ```text
//! slot   3    4    5    6    7          A and B have home 3, C has home 4, D has home 6
//!        A    B    C    D    -
//! remove A: the hole is at 3
//!        -    B    C    D    -          B may move to 3, its home; the hole is at 4
//!        B    -    C    D    -          C may move to 4, its home; the hole is at 5
//!        B    C    -    D    -          D stays: at 5 it would be before its home; 7 ends the loop
//! ```

use std::num::NonZeroU32;

use super::fingerprint::{Tag, scale};
use crate::algebra::State;
use crate::clock::Timestamp;

/// A bucket, or a vacancy if `quota` is `None`. It takes 32 bytes, half a cache line.
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

    pub(super) const fn new((low, high): Tag, quota: NonZeroU32, state: State) -> Self {
        Self { low, high, quota: Some(quota), state }
    }

    /// The place of the bucket's quota in the shard's quota table; `None` for a vacancy.
    pub(super) const fn quota(&self) -> Option<NonZeroU32> {
        self.quota
    }

    pub(super) const fn state(&self) -> State {
        self.state
    }

    pub(super) const fn tag(&self) -> (u64, u32) {
        (self.low, self.high)
    }

    /// Whether a search for this tag ends at this slot: it has the tag, or is vacant.
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

/// The slots of a shard. At most four fifths of them are taken, so a vacancy always ends a search.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    taken: usize,
    /// As many slots as the shard's bound needs: the table does not grow beyond, except as `grow`
    /// says.
    enough: usize,
}

const FIRST_SLOTS: usize = 8;

impl Table {
    /// An empty table for at most this many buckets. It allocates with the first insertion.
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

    /// The index of the bucket with this tag.
    pub(super) fn find(&self, tag: (u64, u32)) -> Option<usize> {
        let home = scale(tag.0, self.slots.len());
        let (before, after) = self.slots.split_at_checked(home)?;
        // From the home to the end, then from the start.
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

    /// The bucket with this tag, for a change of its state.
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

    /// Adds a bucket. Its tag must not be in the table.
    pub(super) fn insert(&mut self, slot: Slot) {
        // Counted with the new bucket, so that vacancies are left after it as well: without one, a
        // search for an absent bucket would visit all slots.
        if self.taken.saturating_add(1) > four_fifths(self.slots.len()) {
            self.grow();
        }
        self.place(slot);
    }

    fn grow(&mut self) {
        let old = self.slots.len();
        let more = old.saturating_add(old / 2).max(FIRST_SLOTS);
        // More buckets than the bound only get in here if requests wait for all of them, because
        // such buckets are not evicted.
        let new = if old >= self.enough { more } else { more.min(self.enough) };
        self.resize(new.max(old.saturating_add(1)));
    }

    /// Gives memory back if fewer than a quarter of the slots are taken. Keeps twice as many slots
    /// as buckets.
    pub(super) fn shrink(&mut self) {
        let needed = self.taken.saturating_mul(2);
        if needed < self.slots.len() / 2 {
            // Nothing taken leaves no slots at all: `find` copes with that, and the next insertion
            // allocates.
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

    /// Puts a bucket into the first vacancy from its home on. `insert` keeps a fifth of the slots
    /// vacant, so there is one.
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

    /// Removes the bucket at `index`, and moves later buckets up so that no search ends too early.
    pub(super) fn remove(&mut self, index: usize) -> Option<Slot> {
        let removed = *self.slots.get(index).filter(|slot| slot.quota.is_some())?;
        // Each bucket between the hole and the next vacancy is looked at once. Behind a vacancy, no
        // bucket has its home before it, so the search may end there.
        let mut hole = index;
        let mut next = self.after(hole);
        while let Some(slot) = self.slots.get(next)
            && slot.quota.is_some()
            && next != index
        {
            // The bucket must not move to a slot before its home. It stays if its home lies between
            // the hole and itself, counting round the end of the table.
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

    /// The index after this one; after the last comes the first.
    pub(super) fn after(&self, index: usize) -> usize {
        let next = index.saturating_add(1);
        if next >= self.slots.len() { 0 } else { next }
    }
}

/// Searches for absent buckets get long above this load.
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
        Slot::new((low, 0), NonZeroU32::MIN, state)
    }

    proptest! {
        /// The tags have a few homes only, one of them at the end of the table. So runs of buckets
        /// collide and wrap round.
        #[test]
        fn the_table_finds_what_a_hash_map_finds(
            steps in prop::collection::vec((any::<bool>(), 0_u64..40, any::<i64>()), 0..400),
        ) {
            let mut table = Table::with_max_buckets(40);
            let mut model = HashMap::new();
            for (insert, name, value) in steps {
                // The highest bits pick the home. With these hashes, one home is at the very end.
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
                    let index = table.find((low, 0)).expect("an inserted bucket is found");
                    prop_assert_eq!(table.get(index).unwrap().state().value, value);
                }
            }
        }
    }
}
