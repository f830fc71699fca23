//! The shards of a store, each behind its lock: how many there are, and which one holds a bucket.

use parking_lot::Mutex;

use super::fingerprint::{Fingerprint, Tag, shard_of};
use super::shard::Shard;
use super::shard_copy::ShardCopy;
use crate::algebra::{Bucket, State};
use crate::backend::reset_log::ResetLog;
use crate::clock::Timestamp;

/// The shards of a store; always at least one.
pub(super) struct Shards {
    /// All shards but the last one. With the last one apart, `get` needs no panic and no `Option`.
    most: Box<[PaddedShard]>,
    last: PaddedShard,
    /// The number of shards, a power of two.
    count: usize,
}

/// Keeps the locks of two shards out of each other's cache lines.
#[repr(align(128))]
struct PaddedShard(Mutex<Shard>);

/// The bound of a shard's buckets, as long as there are fewer than [`MAX_SHARDS`] shards. It bounds
/// the pauses: a table grows, and an eviction scans, under the lock of one shard.
const SHARD_KEYS: usize = 1_024;

/// With more than 67 million buckets the shards get larger instead of more.
const MAX_SHARDS: usize = 1 << 16;

impl Shards {
    /// Enough shards to keep each small, with equal parts of the bound.
    pub(super) fn new(max_keys: usize) -> Self {
        // The largest count is a power of two itself, so rounding up never exceeds it.
        let count = max_keys.div_ceil(SHARD_KEYS).clamp(1, MAX_SHARDS).next_power_of_two();
        // Rounded down, so that all shards together hold no more than `max_keys`.
        let capacity = max_keys.checked_div(count).unwrap_or(max_keys).max(1);
        let resets = || ResetLog::for_part_of(count);
        let shard = || PaddedShard(Mutex::new(Shard::new(capacity, resets())));
        Self { most: (1..count).map(|_| shard()).collect(), last: shard(), count }
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// The index of the shard that holds a bucket, below [`count`](Self::count).
    pub(super) fn index_of(&self, print: Fingerprint) -> usize {
        print.shard(self.count())
    }

    pub(super) fn get(&self, index: usize) -> &Mutex<Shard> {
        &self.most.get(index).unwrap_or(&self.last).0
    }

    pub(super) fn shard_of(&self, print: Fingerprint) -> &Mutex<Shard> {
        self.get(self.index_of(print))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.most.iter().chain([&self.last]).map(|padded| &padded.0)
    }

    /// Adds a bucket that another store with the same hash had. Returns whether its tag is new
    /// here.
    pub(super) fn take_in(&self, tag: Tag, bucket: &Bucket, state: State, now: Timestamp) -> bool {
        self.get(shard_of(tag, self.count())).lock().take_in(tag, bucket, state, now)
    }

    /// Goes on with the buckets of other shards, which have the same hash.
    pub(super) fn continue_from(&self, others: &Self, now: Timestamp) {
        let (mut copy, mut resets) = (ShardCopy::default(), 0);
        for shard in others.iter() {
            let shard = shard.lock();
            copy.take(&shard);
            resets = shard.resets.count().max(resets);
            for (tag, bucket, state) in copy.buckets() {
                self.take_in(tag, bucket, state, now);
            }
        }
        self.continue_resets(resets);
    }

    /// Goes on from this count of resets.
    pub(super) fn continue_resets(&self, count: u64) {
        if count > 0 {
            self.iter().for_each(|shard| shard.lock().continue_resets(count));
        }
    }
}
