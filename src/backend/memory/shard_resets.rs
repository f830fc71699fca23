//! Resets of the buckets of a shard, under its lock.

use super::fingerprint::Fingerprint;
use super::shard::Shard;
use crate::algebra::State;
use crate::backend::adjustment::Adjustment;
use crate::backend::apply::absent;
use crate::backend::charge::BucketId;
use crate::clock::Timestamp;

impl Shard {
    /// Notes that a bucket is going to be reset.
    pub(super) fn record_reset(&mut self, print: Fingerprint) {
        self.resets.record(print.tag().0);
    }

    /// Counts resets from here on. What is taken is marked so.
    pub(super) fn count_resets_from(&mut self, count: u64) {
        self.resets.count_from(count);
        self.mark = self.resets.mark();
    }

    /// Makes a bucket as new, whose reset was [recorded](Self::record_reset). The waiters for it go
    /// on from there.
    pub(super) fn forget(&mut self, print: Fingerprint, id: BucketId<'_>, now: Timestamp) {
        let tag = print.tag();
        self.before_change(tag, false, now);
        let mark = self.mark;
        let Some(index) = self.table.find(tag) else { return };
        let Some((stored, lines)) = self.bucket_and_lines(tag).filter(|(_, lines)| lines.has(tag))
        else {
            self.remove(index, now);
            return;
        };
        let fresh = absent(id, stored.bucket, now);
        // The head may have more saved up for it already. In a bucket that is blocked, the waiters
        // have been told their instants instead.
        let State { value: held, ts } = stored.bucket.refresh(stored.state, now);
        let saved = if ts > now { held } else { held.saturating_add(lines.units(tag)) };
        let free = fresh.value.max(saved);
        // What the waiters have paid is taken from the fresh bucket, and comes back to that.
        lines.outlive_reset(tag, mark);
        // What was taken without a request that waits is forgiven.
        if lines.forget_unattended(tag) {
            self.remove(index, now);
            return;
        }
        // What was saved up for one of these is no more than the bound of the next head.
        let free = free.min(lines.free_cap(stored));
        let value = free.saturating_sub(lines.units(tag));
        self.keep_state(tag, State { value, ts: fresh.ts }, now);
        self.grant(tag, now);
    }

    /// Whether any bucket was ever reset, so that a mark says something.
    pub(super) const fn has_resets(&self) -> bool {
        !self.resets.is_empty()
    }

    /// Whether a reset has forgiven what this gives back.
    pub(super) fn has_forgiven(&self, print: Fingerprint, one: &Adjustment<'_>) -> bool {
        let is_forgiven = |mark| self.resets.has_forgiven(print.tag().0, mark);
        one.change().returns_at_most() > 0 && one.mark().is_some_and(is_forgiven)
    }
}
