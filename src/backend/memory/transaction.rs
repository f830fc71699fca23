//! Several charges at once, on buckets of this store.
//!
//! # Design
//!
//! All shards concerned are locked before anything is read, always in the order of their numbers,
//! so that two transactions over the same shards cannot wait for each other. They are let go of
//! together when everything is written. Whoever holds the locks sees either all of another
//! transaction or nothing of it.

use parking_lot::MutexGuard;

use super::fingerprint::{Fingerprint, Hasher};
use super::shard::Shard;
use super::shards::Shards;
use super::{Adjustment, Applied, BucketId, Charge};
use crate::algebra::{Bucket, State};
use crate::backend::transaction::{self, Cells, Few, Kept};
use crate::clock::Timestamp;

pub(super) fn apply(
    shards: &Shards,
    hasher: &Hasher,
    charges: &[Charge<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let mut named = Few::new();
    for charge in charges {
        let id = charge.id();
        named.push((hasher.fingerprint(id), charge));
        if let Some(other) = charge.other() {
            named.push((hasher.fingerprint(id.shard(other)), charge));
        }
    }
    let mut locked = Locked::lock(shards, named.iter().map(|&(print, _)| print));
    transaction::apply(&mut locked, &named, now())
}

/// Makes all adjustments, or none of them.
pub(super) fn adjust(
    shards: &Shards,
    hasher: &Hasher,
    adjustments: &[Adjustment<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let mut named = Few::new();
    for adjustment in adjustments {
        named.push((hasher.fingerprint(adjustment.id()), adjustment));
    }
    let mut locked = Locked::lock(shards, named.iter().map(|&(print, _)| print));
    transaction::adjust(&mut locked, &named, now())
}

/// Forgets all of them, in one step.
pub(super) fn reset(shards: &Shards, hasher: &Hasher, ids: &[BucketId<'_>]) {
    let mut prints = Few::new();
    ids.iter().for_each(|&id| prints.push(hasher.fingerprint(id)));
    let mut locked = Locked::lock(shards, prints.iter().copied());
    for &print in prints.iter() {
        if let Some(shard) = locked.shard(print) {
            shard.forget(print);
        }
    }
}

/// The shards of a transaction, in the order of their numbers.
struct Locked<'a> {
    shards: &'a Shards,
    guards: Few<(usize, MutexGuard<'a, Shard>)>,
}

impl<'a> Locked<'a> {
    /// Locks the shards of all these buckets, each once and the lowest first.
    fn lock(shards: &'a Shards, prints: impl Iterator<Item = Fingerprint>) -> Self {
        let mut indices = Few::<usize>::new();
        for print in prints {
            let index = shards.index_of(print);
            if let Err(place) = indices.binary_search(&index) {
                indices.insert(place, index);
            }
        }
        let mut guards = Few::new();
        for index in indices {
            guards.push((index, shards.at(index).lock()));
        }
        Self { shards, guards }
    }

    fn shard(&mut self, print: Fingerprint) -> Option<&mut Shard> {
        let index = self.shards.index_of(print);
        let position = self.guards.binary_search_by_key(&index, |&(index, _)| index).ok()?;
        self.guards.get_mut(position).map(|(_, guard)| &mut **guard)
    }
}

/// Every bucket's shard was locked before, so none is passed over.
impl Cells for Locked<'_> {
    type Id = Fingerprint;

    fn read(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Option<State> {
        Some(self.shard(print)?.read(print, id, bucket, now))
    }

    fn is_stored(&mut self, print: Fingerprint) -> bool {
        self.shard(print).is_some_and(|shard| shard.holds(print))
    }

    fn write(&mut self, print: Fingerprint, bucket: &Bucket, kept: Kept, now: Timestamp) {
        if let Some(shard) = self.shard(print) {
            shard.write(print, bucket, kept, now);
        }
    }
}
