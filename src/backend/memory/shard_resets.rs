//! Resets of the buckets of a shard, under its lock.

use super::fingerprint::Fingerprint;
use super::shard::Shard;
use crate::algebra::State;
use crate::backend::adjustment::Adjustment;
use crate::backend::apply::absent;
use crate::backend::charge::BucketId;
use crate::clock::Timestamp;

impl Shard {
    /// Counts a reset of this bucket in the log.
    pub(super) fn record_reset(&mut self, print: Fingerprint) {
        self.resets.record(print.tag().0);
    }

    /// Raises the count of resets to this, and takes the mark that belongs to it.
    pub(super) fn count_resets_from(&mut self, count: u64) {
        self.resets.count_from(count);
        self.mark = self.resets.mark();
    }

    /// Goes on from the count of the store that had these buckets before.
    pub(super) fn continue_resets(&mut self, count: u64) {
        self.resets.continue_from(count);
        self.mark = self.resets.mark();
    }

    /// Forgets a bucket, after its reset was [recorded](Self::record_reset). Its waiters stay in
    /// line, now for a new bucket.
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
        // The bucket may hold more than a new one, saved up for the head of the line: the head
        // keeps that. In a blocked bucket, the waiters keep their promised instants instead.
        let State { value: held, ts } = stored.bucket.refresh(stored.state, now);
        let saved = if ts > now { held } else { held.saturating_add(lines.units(tag)) };
        let free = fresh.value.max(saved);
        // The waiters pay from the new bucket, so a refund of theirs is not forgiven by this reset.
        lines.outlive_reset(tag, mark);
        // The reset forgives tokens that were taken without a waiter. If that ends the line, the
        // bucket can go.
        if lines.forget_unattended(tag) {
            self.remove(index, now);
            return;
        }
        // If one of these was the head, the tokens saved up for it may exceed the bound for the
        // next head.
        let free = free.min(lines.free_cap(stored));
        let value = free.saturating_sub(lines.units(tag));
        self.keep_state(tag, State { value, ts: fresh.ts }, now);
        self.grant(tag, now);
    }

    /// Whether any bucket of the shard was ever reset. If not, marks need not be compared.
    pub(super) const fn has_resets(&self) -> bool {
        !self.resets.is_empty()
    }

    /// Whether a reset has forgiven the tokens that this adjustment gives back.
    pub(super) fn has_forgiven(&self, print: Fingerprint, one: &Adjustment<'_>) -> bool {
        let is_forgiven = |mark| self.resets.has_forgiven(print.tag().0, mark);
        one.change().returns_at_most() > 0 && one.mark().is_some_and(is_forgiven)
    }
}
