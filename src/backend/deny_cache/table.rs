//! A table of buckets that were seen short, of a fixed size.
//!
//! # Design
//!
//! The table has sets of eight places. A keyed hash of a bucket's name picks the set, and a new
//! bucket takes the place of the one in it that was asked about longest ago. So the table never
//! grows, no client can choose which sets its keys fall into, and a name of 64 KiB takes no more
//! room than a short one. It keeps 128 bits of the hash, so that two names share a place by no more
//! than chance: once in 10²⁰ pairs of 10⁹ names.

use std::hash::{BuildHasher, Hasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::algebra::{Bucket, State};
use crate::backend::charge::BucketId;
use crate::clock::Timestamp;

/// What a refusal has told about a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenBucket {
    /// The numbers in which the store counts it.
    pub(super) bucket: Bucket,
    pub(super) state: State,
    /// When the store has decided, by the clock of the store.
    pub(super) decided: Timestamp,
    /// When the question was sent, and when its answer was read, by the clock of this process.
    pub(super) sent: Timestamp,
    pub(super) answered: Timestamp,
}

/// The hash of a bucket's name.
pub(super) type SlotHash = [u64; 2];

const WAYS: usize = 8;

/// A table of a fixed size.
pub(super) struct DenyTable {
    sets: Box<[Mutex<SlotSet>]>,
    keys: [u64; 2],
}

/// Eight places.
#[derive(Debug, Default)]
struct SlotSet {
    slots: [Option<(SlotHash, SeenBucket)>; WAYS],
    /// How many give-backs to buckets of this set were sent or answered.
    returns: u64,
    /// How many of them have no answer yet.
    pending: u64,
}

impl std::fmt::Debug for DenyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DenyTable({} sets)", self.sets.len())
    }
}

impl DenyTable {
    pub(super) fn new(max_keys: usize) -> Self {
        let sets = (0..max_keys.div_ceil(WAYS)).map(|_| Mutex::default()).collect();
        // Each `RandomState` hashes under a secret key of its own.
        Self { sets, keys: [0, 1].map(|nth: u64| RandomState::new().hash_one(nth)) }
    }

    pub(super) fn hash(&self, id: BucketId<'_>) -> SlotHash {
        let [one, other] = self.keys;
        let mut hasher = SipHasher13::new_with_keys(one, other);
        // The names of limits have no byte 0xff.
        hasher.write(id.limit().as_bytes());
        hasher.write_u8(0xff);
        hasher.write_u32(id.shard_index());
        hasher.write(id.key().as_bytes());
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }

    /// What is known of a bucket that is counted in these numbers, or whose own are faster.
    pub(super) fn get(&self, slot: SlotHash, bucket: &Bucket) -> Option<SeenBucket> {
        let set = self.set(slot)?;
        let found = set.slots.iter().flatten().find(|(other, _)| *other == slot);
        let found = found.map(|(_, seen)| *seen);
        found.filter(|seen| seen.bucket == *bucket || !seen.bucket.yields_to(bucket))
    }

    /// The number to [insert](Self::insert) with what is asked now.
    pub(super) fn returns(&self, slot: SlotHash) -> u64 {
        self.set(slot).map_or(0, |set| set.returns)
    }

    /// Remembers a bucket, unless tokens have come back to it since the question was sent, or may be
    /// doing so now.
    pub(super) fn insert(&self, slot: SlotHash, seen: SeenBucket, returns: u64) {
        let Some(mut set) = self.set(slot) else { return };
        if set.returns != returns || set.pending > 0 {
            return;
        }
        // Its own place, or an empty one, or that of the oldest.
        let rank = |place: &&mut Option<(SlotHash, SeenBucket)>| match **place {
            Some((other, _)) if other == slot => None,
            None => Some(None),
            Some((_, seen)) => Some(Some(seen.sent)),
        };
        if let Some(place) = set.slots.iter_mut().min_by_key(rank) {
            *place = Some((slot, seen));
        }
    }

    pub(super) fn forget(&self, slot: SlotHash) {
        if let Some(mut set) = self.set(slot) {
            set.forget(slot);
        }
    }

    /// Tokens are on their way to a bucket.
    pub(super) fn begin_return(&self, slot: SlotHash) {
        let Some(mut set) = self.set(slot) else { return };
        set.forget(slot);
        set.returns = set.returns.saturating_add(1);
        set.pending = set.pending.saturating_add(1);
    }

    /// They have arrived, or never will.
    pub(super) fn end_return(&self, slot: SlotHash) {
        let Some(mut set) = self.set(slot) else { return };
        set.returns = set.returns.saturating_add(1);
        set.pending = set.pending.saturating_sub(1);
    }

    /// The set of a bucket; none if the table has no places.
    fn set(&self, [hash, _]: SlotHash) -> Option<MutexGuard<'_, SlotSet>> {
        let sets = u128::try_from(self.sets.len()).ok()?;
        // The upper half of the product spreads hashes evenly over the sets.
        let index = usize::try_from(u128::from(hash).saturating_mul(sets) >> 64).ok()?;
        // A poisoned lock is harmless: nothing panics while it is held.
        Some(self.sets.get(index)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many buckets it knows, and the bytes of all places.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let known = |set: &Mutex<SlotSet>| set.lock().unwrap().slots.iter().flatten().count();
        (self.sets.iter().map(known).sum(), size_of_val(&*self.sets))
    }
}

impl SlotSet {
    fn forget(&mut self, slot: SlotHash) {
        for place in &mut self.slots {
            if place.is_some_and(|(other, _)| other == slot) {
                *place = None;
            }
        }
    }
}
