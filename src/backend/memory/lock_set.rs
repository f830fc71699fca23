//! Several buckets at once: the locks of their shards.
//!
//! # Design
//!
//! All shards are locked before anything is read, in the order of their numbers. A call that waits
//! for a lock holds only lower ones, so no two calls can wait for each other. The locks are released
//! together when everything is written, so another call sees either all of this one or nothing.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::fingerprint::{Fingerprint, Hasher};
use super::shard::Shard;
use super::shards::Shards;
use crate::algebra::{Bucket, State};
use crate::backend::adjustment::Adjustment;
use crate::backend::answer::{Applied, Reading};
use crate::backend::apply::{CellStore, absent, adjust_list, apply_list, apply_pair};
use crate::backend::charge::{BucketId, Charge};
use crate::clock::Timestamp;

/// Takes all charges, or none of them.
pub(super) fn charge_all(
    shards: &Shards,
    hasher: &Hasher,
    charges: &[Charge<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let mut named = SmallVec::<[_; 8]>::new();
    for charge in charges {
        let id = charge.id();
        named.push((hasher.fingerprint(id), charge));
        if let Some(other) = charge.get_second_shard() {
            named.push((hasher.fingerprint(id.shard(other)), charge));
        }
    }
    let mut locks = LockSet::lock(shards, named.iter().map(|&(print, _)| print));
    // Read under the locks: a call that decides later has no earlier time, as far as the clock goes.
    apply_list(&mut locks, &named, now())
}

/// Takes a two-choices charge that is alone, as those of a hot limit are: no list is kept for it.
pub(super) fn charge_pair(
    shards: &Shards,
    hasher: &Hasher,
    charge: &Charge<'_>,
    other: u32,
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let id = charge.id();
    let prints = [id, id.shard(other)].map(|id| hasher.fingerprint(id));
    let mut locks = LockPair::lock(shards, prints);
    let now = now();
    let charged = apply_pair(&mut locks, prints, charge, other, now);
    drop(locks);
    Applied::two(now, Reading::from_charged_pair(charge, &charged))
}

/// Makes all adjustments, or none of them.
pub(super) fn adjust_all(
    shards: &Shards,
    hasher: &Hasher,
    adjustments: &[Adjustment<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let mut named = SmallVec::<[_; 8]>::new();
    for adjustment in adjustments {
        named.push((hasher.fingerprint(adjustment.id()), adjustment));
    }
    let mut locks = LockSet::lock(shards, named.iter().map(|&(print, _)| print));
    adjust_list(&mut locks, &named, now())
}

/// Forgets all of these buckets, in one step.
pub(super) fn forget_all(shards: &Shards, hasher: &Hasher, ids: &[BucketId<'_>]) {
    let mut prints = SmallVec::<[_; 8]>::new();
    ids.iter().for_each(|&id| prints.push(hasher.fingerprint(id)));
    let mut locks = LockSet::lock(shards, prints.iter().copied());
    for &print in &prints {
        if let Some(shard) = locks.shard(print) {
            shard.forget(print);
        }
    }
}

/// The locked shards of a call, in the order of their numbers.
struct LockSet<'a> {
    shards: &'a Shards,
    guards: SmallVec<[(usize, MutexGuard<'a, Shard>); 8]>,
}

impl<'a> LockSet<'a> {
    /// Locks the shards of all these buckets, each once and the lowest first.
    fn lock(shards: &'a Shards, prints: impl Iterator<Item = Fingerprint>) -> Self {
        let mut indices = SmallVec::<[usize; 8]>::new();
        for print in prints {
            let index = shards.index_of(print);
            if let Err(place) = indices.binary_search(&index) {
                indices.insert(place, index);
            }
        }
        let mut guards = SmallVec::new();
        for index in indices {
            guards.push((index, shards.at(index).lock()));
        }
        Self { shards, guards }
    }

    /// The shard of a bucket; `None` if it is not locked, which does not happen: the shards of all
    /// buckets of the call are.
    fn shard(&mut self, print: Fingerprint) -> Option<&mut Shard> {
        let index = self.shards.index_of(print);
        let position = self.guards.binary_search_by_key(&index, |&(index, _)| index).ok()?;
        self.guards.get_mut(position).map(|(_, guard)| &mut **guard)
    }
}

impl CellStore for LockSet<'_> {
    type Cell = Fingerprint;

    fn read(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> State {
        match self.shard(print) {
            Some(shard) => shard.read(print, id, bucket, now),
            None => absent(id, bucket, now),
        }
    }

    fn is_stored(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool {
        self.shard(print).is_some_and(|shard| shard.holds(print, id, bucket, now))
    }

    fn is_converted(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool {
        self.shard(print).is_some_and(|shard| shard.converts(print, id, bucket, now))
    }

    fn write(&mut self, print: Fingerprint, bucket: &Bucket, state: State, now: Timestamp) {
        if let Some(shard) = self.shard(print) {
            shard.write(print, bucket, state, now);
        }
    }
}

/// The locked shards of two buckets, which may be the same one.
struct LockPair<'a> {
    shards: &'a Shards,
    low: MutexGuard<'a, Shard>,
    /// With its number; `None` if both buckets are in the same shard.
    high: Option<(usize, MutexGuard<'a, Shard>)>,
}

impl<'a> LockPair<'a> {
    fn lock(shards: &'a Shards, prints: [Fingerprint; 2]) -> Self {
        let [first, second] = prints.map(|print| shards.index_of(print));
        let (low, high) = (first.min(second), first.max(second));
        let low_guard = shards.at(low).lock();
        let high_guard = (low < high).then(|| (high, shards.at(high).lock()));
        Self { shards, low: low_guard, high: high_guard }
    }

    fn shard(&mut self, print: Fingerprint) -> &mut Shard {
        match &mut self.high {
            Some((index, shard)) if self.shards.index_of(print) == *index => shard,
            _ => &mut self.low,
        }
    }
}

impl CellStore for LockPair<'_> {
    type Cell = Fingerprint;

    fn read(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> State {
        self.shard(print).read(print, id, bucket, now)
    }

    fn is_stored(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool {
        self.shard(print).holds(print, id, bucket, now)
    }

    fn is_converted(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool {
        self.shard(print).converts(print, id, bucket, now)
    }

    fn write(&mut self, print: Fingerprint, bucket: &Bucket, state: State, now: Timestamp) {
        self.shard(print).write(print, bucket, state, now);
    }
}
