//! Several buckets at once: the locks of their shards.
//!
//! # Design
//!
//! All shards are locked before anything is read, in the order of their numbers. A call that waits
//! for a lock holds only lower ones, so no two calls can wait for each other. The locks are released
//! together when everything is written, so another call sees either all of this one or nothing.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::shard::Shard;
use super::shards::Shards;
use super::waiter::Wakeups;
use crate::algebra::{Bucket, State, Units};
use crate::backend::adjustment::Adjustment;
use crate::backend::apply::{CellStore, absent};
use crate::backend::charge::{BucketId, Charge};
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// Up to how many locks are searched one by one.
const SHORT: usize = 4;

/// The locked shards of a call, in the order of their numbers.
pub(super) struct LockSet<'a> {
    shards: &'a Shards,
    guards: SmallVec<[(usize, MutexGuard<'a, Shard>); 8]>,
}

impl<'a> LockSet<'a> {
    /// Locks the shards of all these buckets, each once and the lowest first.
    pub(super) fn lock(shards: &'a Shards, prints: impl Iterator<Item = Fingerprint>) -> Self {
        let mut indices = SmallVec::<[usize; 8]>::new();
        for print in prints {
            indices.push(shards.index_of(print));
        }
        indices.sort_unstable();
        indices.dedup();
        let mut guards = SmallVec::new();
        for index in indices {
            guards.push((index, shards.at(index).lock()));
        }
        Self { shards, guards }
    }

    /// The shard of a bucket; `None` if it is not locked, which does not happen: the shards of all
    /// buckets of the call are.
    pub(super) fn shard(&mut self, print: Fingerprint) -> Option<&mut Shard> {
        let index = self.shards.index_of(print);
        let guards = self.guards.as_mut_slice();
        if guards.len() <= SHORT {
            // Two or three, nearly always.
            return guards
                .iter_mut()
                .find(|(known, _)| *known == index)
                .map(|(_, guard)| &mut **guard);
        }
        let position = guards.binary_search_by_key(&index, |&(index, _)| index).ok()?;
        guards.get_mut(position).map(|(_, guard)| &mut **guard)
    }

    /// Grants what is due in the lines of these buckets.
    pub(super) fn grant_all(&mut self, named: &[(Fingerprint, &Charge<'_>)], now: Timestamp) {
        if self.have_lines() {
            for &(print, _) in named {
                if let Some(shard) = self.shard(print) {
                    shard.grant(print.tag(), now);
                }
            }
        }
    }

    /// What is taken from these shards now is marked with this: the same for all, as a permit keeps one
    /// mark.
    pub(super) fn mark(&mut self) -> ResetMark {
        if !self.have_resets() {
            return ResetMark::NONE;
        }
        let most = self.guards.iter().map(|(_, guard)| guard.resets.count()).max();
        let mut mark = ResetMark::NONE;
        for (_, guard) in &mut self.guards {
            guard.count_resets_from(most.unwrap_or(0));
            mark = guard.mark;
        }
        mark
    }

    pub(super) fn have_resets(&self) -> bool {
        self.guards.iter().any(|(_, guard)| guard.has_resets())
    }

    pub(super) fn have_lines(&self) -> bool {
        self.guards.iter().any(|(_, guard)| guard.has_lines())
    }

    /// What a bucket holds.
    pub(super) fn value(
        &mut self,
        print: Fingerprint,
        one: &Adjustment<'_>,
        now: Timestamp,
    ) -> Units {
        let bucket = one.bucket();
        bucket.refresh(self.read(print, one.id(), bucket, now), now).value
    }

    /// Unlocks the shards. What is to be woken is foreign code, which may come back here.
    pub(super) fn unlock(mut self) -> Wakeups {
        let mut wakeups = Wakeups::default();
        for (_, guard) in &mut self.guards {
            if let Some(more) = guard.take_wakeups() {
                wakeups.append(more);
            }
        }
        wakeups
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
pub(super) struct LockPair<'a> {
    shards: &'a Shards,
    low: MutexGuard<'a, Shard>,
    /// With its number; `None` if both buckets are in the same shard.
    high: Option<(usize, MutexGuard<'a, Shard>)>,
}

impl<'a> LockPair<'a> {
    pub(super) fn lock(shards: &'a Shards, prints: [Fingerprint; 2]) -> Self {
        let [first, second] = prints.map(|print| shards.index_of(print));
        let (low, high) = (first.min(second), first.max(second));
        let low_guard = shards.at(low).lock();
        let high_guard = (low < high).then(|| (high, shards.at(high).lock()));
        Self { shards, low: low_guard, high: high_guard }
    }

    pub(super) fn shard(&mut self, print: Fingerprint) -> &mut Shard {
        match &mut self.high {
            Some((index, shard)) if self.shards.index_of(print) == *index => shard,
            _ => &mut self.low,
        }
    }

    /// As [`LockSet::mark`].
    pub(super) fn mark(&mut self) -> ResetMark {
        if let Some((_, high)) = &mut self.high
            && (high.has_resets() || self.low.has_resets())
        {
            let most = high.resets.count().max(self.low.resets.count());
            high.count_resets_from(most);
            self.low.count_resets_from(most);
        }
        self.low.mark
    }

    /// As [`LockSet::unlock`].
    #[inline]
    pub(super) fn unlock(mut self) -> Wakeups {
        let mut wakeups = Wakeups::default();
        let high = self.high.iter_mut().map(|(_, guard)| guard);
        for guard in std::iter::once(&mut self.low).chain(high) {
            if let Some(more) = guard.take_wakeups() {
                wakeups.append(more);
            }
        }
        wakeups
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
