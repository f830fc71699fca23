//! Which bucket is evicted when a shard is full: the one nearest to full, and a blocked one last.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::lines::Lines;
use super::quota_table::QuotaTable;
use super::table::{Slot, Table};
use crate::algebra::State;
use crate::clock::Timestamp;

/// The buckets that are nearest to full. One scan of the whole shard finds some of them, and each
/// eviction uses one up, so that a new bucket pays for a few slots and not for a scan.
///
/// Invariant: every bucket that is full before `horizon` is in the heap, ranked by the instant at
/// which it was to be full when it was last seen. A charge only makes that instant later, which is
/// noticed when the bucket is popped. Whatever may make it earlier (tokens that come back, other
/// numbers, the end of a line) puts the bucket into the heap once more.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue {
    nearest: BinaryHeap<Reverse<Candidate>>,
    horizon: Option<Rank>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: Rank,
    tag: (u64, u32),
}

/// The order of eviction, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Whether it is blocked. It may well be full before others are, but to evict it would lift the
    /// block.
    is_closed: bool,
    full_at: Timestamp,
}

/// A scan keeps one bucket of so many.
const SCAN_SHARE: usize = 16;

impl EvictionQueue {
    /// The slot of the bucket to evict.
    pub(super) fn victim(
        &mut self,
        table: &Table,
        quotas: &QuotaTable,
        lines: Option<&Lines>,
        now: Timestamp,
    ) -> Option<usize> {
        self.pop(table, quotas, lines, now).or_else(|| {
            self.scan(table, quotas, lines, now);
            self.pop(table, quotas, lines, now)
        })
    }

    /// Takes note of a bucket that was just added, or that may be full earlier than before.
    pub(super) fn noted(
        &mut self,
        slot: &Slot,
        table: &Table,
        quotas: &QuotaTable,
        lines: Option<&Lines>,
        now: Timestamp,
    ) {
        let Some(horizon) = self.horizon else { return };
        if self.nearest.len() >= table.len() {
            // Buckets come and go without evictions, so the heap has grown stale: scan when one is due.
            *self = Self::default();
            return;
        }
        if let Some(candidate) = candidate(slot, quotas, lines, now)
            && candidate.rank < horizon
        {
            self.nearest.push(Reverse(candidate));
        }
    }

    fn pop(
        &mut self,
        table: &Table,
        quotas: &QuotaTable,
        lines: Option<&Lines>,
        now: Timestamp,
    ) -> Option<usize> {
        while let Some(Reverse(noted)) = self.nearest.pop() {
            let Some(index) = table.find(noted.tag) else { continue };
            let Some(current) =
                table.get(index).and_then(|slot| candidate(slot, quotas, lines, now))
            else {
                continue;
            };
            if current.rank <= noted.rank {
                return Some(index);
            }
            if self.horizon.is_some_and(|horizon| current.rank < horizon) {
                self.nearest.push(Reverse(current));
            }
        }
        self.horizon = None;
        None
    }

    /// Scans the whole shard, and keeps the nearest to full in a bounded heap.
    fn scan(&mut self, table: &Table, quotas: &QuotaTable, lines: Option<&Lines>, now: Timestamp) {
        let kept = table.len().div_ceil(SCAN_SHARE);
        let mut nearest = BinaryHeap::with_capacity(kept);
        let candidates = table.iter().filter_map(|slot| candidate(slot, quotas, lines, now));
        for candidate in candidates {
            if nearest.len() < kept {
                nearest.push(candidate);
            } else if let Some(mut last) = nearest.peek_mut()
                && candidate < *last
            {
                *last = candidate;
            }
        }
        // A bucket that was left out is not full before the last of those that were kept.
        self.horizon = nearest.peek().map(|last| last.rank);
        self.nearest = nearest.into_iter().map(Reverse).collect();
    }
}

/// `None` for a bucket that requests wait for: it is not evicted.
fn candidate(
    slot: &Slot,
    quotas: &QuotaTable,
    lines: Option<&Lines>,
    now: Timestamp,
) -> Option<Candidate> {
    if lines.is_some_and(|lines| lines.pins(slot.tag())) {
        return None;
    }
    let (bucket, state) = (quotas.get(slot.quota()?)?, slot.state());
    let State { value, ts } = state;
    let rank = Rank { is_closed: value < 0 && ts > now, full_at: bucket.full_at(state) };
    Some(Candidate { rank, tag: slot.tag() })
}
