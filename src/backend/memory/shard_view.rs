//! What an eviction reads of a shard.

use std::num::NonZeroU32;

use super::fingerprint::Tag;
use super::lines::Lines;
use super::quota_table::QuotaTable;
use super::rank::{Rank, Share};
use super::table::{Slot, Table};
use crate::algebra::State;
use crate::clock::Timestamp;
use crate::quota::Kind;

/// What an eviction reads of a shard.
#[derive(Clone, Copy)]
pub(super) struct ShardView<'s> {
    pub(super) table: &'s Table,
    pub(super) quotas: &'s QuotaTable,
    pub(super) lines: Option<&'s Lines>,
    pub(super) now: Timestamp,
}

impl ShardView<'_> {
    /// The rank of a bucket; `None` if it must not be evicted by rank: it has waiters, is blocked, or
    /// counts requests in flight, each of which would no longer be counted.
    #[inline(always)]
    pub(super) fn rank(&self, slot: &Slot) -> Option<Rank> {
        if self.is_pinned(slot.tag()) || is_blocked(slot.state(), self.now) {
            return None;
        }
        let bucket = self.quotas.get(slot.quota()?)?;
        let is_in_use = bucket.never_gains() && slot.state().value < bucket.capacity();
        (!is_in_use).then(|| Rank::new(bucket, slot.state(), self.now))
    }

    pub(super) fn share(&self, slot: &Slot) -> Option<Share> {
        Some(Share::new(self.quotas.get(slot.quota()?)?, slot.state(), self.now))
    }

    pub(super) fn is_pinned(&self, tag: Tag) -> bool {
        self.lines.is_some_and(|lines| lines.pins(tag))
    }

    /// Whether windows of this quota may have ended since the scan, which lowers ranks.
    pub(super) fn is_outdated(&self, name: NonZeroU32, scanned_at: Option<Timestamp>) -> bool {
        let bucket = self.quotas.get(name);
        let step = bucket.map_or(1, |bucket| bucket.step());
        // Ranks of token buckets stay, however long their steps.
        step > 1
            && bucket.is_some_and(|bucket| bucket.kind() == Kind::FixedWindow)
            && scanned_at.is_none_or(|at| self.now.micros_since(at) >= step.max(WINDOW_SCAN))
    }
}

/// Whether a bucket is blocked: it must not be evicted by rank, as that would lift the block.
pub(super) fn is_blocked(State { value, ts }: State, now: Timestamp) -> bool {
    value < 0 && ts > now
}

/// How long a scan of fixed windows is valid at least, in microseconds: sweeps do the rest.
const WINDOW_SCAN: u64 = 1_000_000;
