//! The buckets of one shard, copied under its lock.

use super::fingerprint::Tag;
use super::quota_table::QuotaTable;
use super::shard::Shard;
use super::table::Slot;
use crate::algebra::{Bucket, State};

/// A copy of the buckets of a shard, as they were at one instant. The next copy uses its memory.
#[derive(Debug, Default)]
pub(super) struct ShardCopy {
    slots: Vec<Slot>,
    quotas: QuotaTable,
}

impl ShardCopy {
    /// Copies a shard, which is locked. All else is done after the unlock.
    pub(super) fn take(&mut self, shard: &Shard) {
        self.slots.clear();
        self.slots.extend(shard.table.iter());
        self.quotas.clone_from(&shard.quotas);
    }

    /// The buckets of the copy.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (Tag, &Bucket, State)> {
        self.slots.iter().filter_map(|slot| {
            let bucket = self.quotas.get(slot.quota()?)?;
            Some((slot.tag(), bucket, slot.state()))
        })
    }
}
