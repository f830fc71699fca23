//! Which bucket makes room when a shard is full: the one nearest to full, and a closed one last.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::quota_table::QuotaTable;
use super::table::{Slot, Table};
use crate::algebra::State;
use crate::clock::Timestamp;

/// The buckets that are nearest to full, found by one look at the whole shard and used up one by
/// one, so that a newcomer pays for a few slots and not for all.
///
/// Every bucket that is full before `horizon` is in the heap, with the instant at which it would
/// be when it was last looked at. A charge only makes that later, which is noticed when the bucket
/// is drawn; a bucket that was refunded, opened or given other numbers meanwhile may keep its place
/// until the next look.
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

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Nothing comes in before an instant to come: to forget it would lift a block, which may well be over
    /// before others are full.
    is_closed: bool,
    full_at: Timestamp,
}

/// The part of a shard that one look gathers.
const GATHERED: usize = 16;

impl EvictionQueue {
    /// Where the bucket is that is nearest to full.
    pub(super) fn victim(
        &mut self,
        table: &Table,
        quotas: &QuotaTable,
        now: Timestamp,
    ) -> Option<usize> {
        self.drawn(table, quotas, now).or_else(|| {
            self.look(table, quotas, now);
            self.drawn(table, quotas, now)
        })
    }

    /// Notes a bucket that was just added.
    pub(super) fn added(
        &mut self,
        slot: &Slot,
        table: &Table,
        quotas: &QuotaTable,
        now: Timestamp,
    ) {
        let Some(horizon) = self.horizon else { return };
        if self.nearest.len() >= table.len() {
            // Buckets that come and go without need for room: better to look again then.
            *self = Self::default();
            return;
        }
        if let Some(candidate) = candidate(slot, quotas, now)
            && candidate.rank < horizon
        {
            self.nearest.push(Reverse(candidate));
        }
    }

    fn drawn(&mut self, table: &Table, quotas: &QuotaTable, now: Timestamp) -> Option<usize> {
        while let Some(Reverse(noted)) = self.nearest.pop() {
            let Some(index) = table.find(noted.tag) else { continue };
            let Some(current) = table.get(index).and_then(|slot| candidate(slot, quotas, now))
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

    /// Gathers the nearest to full among all; no more than those are held at any time.
    fn look(&mut self, table: &Table, quotas: &QuotaTable, now: Timestamp) {
        let gathered = table.len().div_ceil(GATHERED);
        let mut nearest = BinaryHeap::with_capacity(gathered);
        for candidate in table.iter().filter_map(|slot| candidate(slot, quotas, now)) {
            if nearest.len() < gathered {
                nearest.push(candidate);
            } else if let Some(mut last) = nearest.peek_mut()
                && candidate < *last
            {
                *last = candidate;
            }
        }
        // Whoever was left out is not before the last of those that were not.
        self.horizon = nearest.peek().map(|last| last.rank);
        self.nearest = nearest.into_iter().map(Reverse).collect();
    }
}

fn candidate(slot: &Slot, quotas: &QuotaTable, now: Timestamp) -> Option<Candidate> {
    let (bucket, state) = (quotas.get(slot.quota()?)?, slot.state());
    let State { value, ts } = state;
    let rank = Rank { is_closed: value < 0 && ts > now, full_at: bucket.full_at(state) };
    Some(Candidate { rank, tag: slot.tag() })
}
