//! Buckets that a shard takes from another store.

use super::fingerprint::Tag;
use super::rank::Rank;
use super::shard::Shard;
use super::shard_view::is_blocked;
use super::table::Slot;
use crate::algebra::{Bucket, State};
use crate::clock::Timestamp;

impl Shard {
    /// Adds a bucket that another store had. Returns whether its tag is new here.
    ///
    /// A full shard evicts for it as for any newcomer, with one difference: the bucket itself goes
    /// if it is the least of those that may. A newcomer that has just been charged stays, but of
    /// the buckets of a dump each might be the last one to come.
    pub(super) fn take_in(
        &mut self,
        tag: Tag,
        bucket: &Bucket,
        state: State,
        now: Timestamp,
    ) -> bool {
        if self.table.find(tag).is_some() {
            return false;
        }
        // `None` after four billion quotas: no shard has as many buckets.
        let Some(quota) = self.quotas.enter(bucket, self.table.len()) else { return true };
        let slot = Slot::new(tag, quota, state);
        if self.table.len() >= self.capacity
            && let Some(index) = self.victim(&slot, now)
        {
            if let Some(victim) = self.table.get(index).copied()
                && self.goes_before(&slot, &victim, now)
            {
                self.quotas.leave(quota);
                // The search has taken it from the queue.
                self.note(victim.tag(), now);
                return true;
            }
            self.remove(index, now);
        }
        self.table.insert(slot);
        self.note(tag, now);
        true
    }

    /// Whether a bucket is to be evicted rather than the victim, which pays for the same quota.
    fn goes_before(&self, slot: &Slot, victim: &Slot, now: Timestamp) -> bool {
        if slot.quota() != victim.quota() {
            return false;
        }
        match [slot, victim].map(|slot| is_blocked(slot.state(), now)) {
            [false, false] => {
                let rank = |slot: &Slot| {
                    let bucket = self.quotas.get(slot.quota()?)?;
                    Some(Rank::new(bucket, slot.state(), now))
                };
                rank(slot) < rank(victim)
            }
            // Too many are blocked, and the block that ends first goes.
            [true, true] => slot.state().ts < victim.state().ts,
            [true, false] | [false, true] => false,
        }
    }
}
