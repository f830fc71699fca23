//! The locks of the shards of several buckets.
//!
//! # Design
//!
//! **No deadlock.** A call locks all its shards before it reads anything, in the order of their
//! indices. A call that waits for a lock holds only locks of lower indices, so no two calls can
//! wait for each other.
//!
//! **Atomicity.** A call releases its locks together, after it has written everything. So any other
//! call sees all of its changes or none.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::shard::Shard;
use super::shards::Shards;
use super::waiter::Wakeups;
use crate::algebra::{Bucket, State};
use crate::backend::apply::CellStore;
use crate::backend::charge::{BucketId, Charge};
use crate::backend::record::Found;
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// Calls on several buckets rarely name more than this.
const FEW: usize = 8;

/// Up to this many locks, a linear search is faster than a binary one.
const SHORT: usize = 4;

/// The locked shards of a call, in the order of their numbers.
pub(super) struct LockSet<'a> {
    shards: &'a Shards,
    guards: SmallVec<[(usize, MutexGuard<'a, Shard>); FEW]>,
}

impl<'a> LockSet<'a> {
    /// Locks the shards of all these buckets, each once and the lowest first.
    #[inline(always)]
    pub(super) fn lock(
        shards: &'a Shards,
        prints: impl ExactSizeIterator<Item = Fingerprint>,
    ) -> Self {
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let indices = match few.get_mut(..prints.len()) {
            Some(few) => few,
            None => {
                many.resize(prints.len(), 0);
                &mut many
            }
        };
        for (index, print) in indices.iter_mut().zip(prints) {
            *index = shards.index_of(print);
        }
        // The order of the indices is the order of the locks: see the design above.
        indices.sort_unstable();
        let (mut guards, mut last) = (SmallVec::new(), None);
        for &mut index in indices {
            // The locks are not reentrant: a second lock of one shard would wait for the first for
            // ever.
            if last != Some(index) {
                guards.push((index, shards.get(index).lock()));
                last = Some(index);
            }
        }
        Self { shards, guards }
    }

    /// The shard of a bucket. It is `None` only for a bucket that the call does not name, because
    /// the shards of all its buckets are locked.
    pub(super) fn shard(&mut self, print: Fingerprint) -> Option<&mut Shard> {
        let position = self.position(print)?;
        self.guards.get_mut(position).map(|(_, guard)| &mut **guard)
    }

    fn position(&self, print: Fingerprint) -> Option<usize> {
        let index = self.shards.index_of(print);
        if self.guards.len() <= SHORT {
            // Nearly always two or three.
            return self.guards.iter().position(|&(known, _)| known == index);
        }
        self.guards.binary_search_by_key(&index, |&(index, _)| index).ok()
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

    /// The mark of what this call takes.
    pub(super) fn mark(&mut self) -> ResetMark {
        let most = self.guards.iter().map(|(_, guard)| guard.resets.count()).max();
        common_mark(most, self.guards.iter_mut().map(|(_, guard)| &mut **guard))
    }

    pub(super) fn have_resets(&self) -> bool {
        self.guards.iter().any(|(_, guard)| guard.has_resets())
    }

    pub(super) fn have_lines(&self) -> bool {
        self.guards.iter().any(|(_, guard)| guard.has_lines())
    }

    /// Unlocks the shards, and runs the wakers and timers. They are code of others, which may call this
    /// store again, so they run without a lock.
    pub(super) fn unlock(mut self) {
        let mut wakeups = None::<Wakeups>;
        for (_, guard) in &mut self.guards {
            if let Some(more) = guard.take_wakeups() {
                wakeups.get_or_insert_default().append(more);
            }
        }
        // All together: until now no other call has seen a part of this one.
        drop(self);
        wakeups.into_iter().for_each(Wakeups::run);
    }
}

impl CellStore for LockSet<'_> {
    type Cell = Fingerprint;

    fn find(
        &mut self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Found {
        match self.shard(print) {
            Some(shard) => shard.find(print, id, bucket, now),
            None => Found::Absent,
        }
    }

    fn write(&mut self, print: Fingerprint, bucket: &Bucket, state: State, now: Timestamp) {
        if let Some(shard) = self.shard(print) {
            shard.write(print, bucket, state, now);
        }
    }
}

/// The mark of what a call takes under the locks of these shards, of which one has counted `most`
/// resets. It is one for all shards, because a permit keeps one mark.
///
/// The shards count their resets apart, so the counts are first raised to the largest of them. A
/// larger count makes no mark older.
#[inline(always)]
pub(super) fn common_mark<'s>(
    most: Option<u64>,
    shards: impl Iterator<Item = &'s mut Shard>,
) -> ResetMark {
    let mut mark = ResetMark::NONE;
    if let Some(most @ 1..) = most {
        for shard in shards {
            shard.count_resets_from(most);
            mark = shard.mark;
        }
    }
    mark
}
