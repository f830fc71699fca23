//! One shard of the store: all that happens under its lock.

use super::eviction::EvictionQueue;
use super::fingerprint::Fingerprint;
use super::lines::Lines;
use super::quota_table::QuotaTable;
use super::shard_view::ShardView;
use super::table::{Slot, Table};
use crate::algebra::{Bucket, State};
use crate::backend::charge::BucketId;
use crate::backend::record::{self, Found};
use crate::backend::reset_log::{ResetLog, ResetMark};
use crate::clock::Timestamp;

/// A shard: at most `capacity` buckets, and what belongs to them.
///
/// The order of the fields matters. A charge on a known bucket reads only the first fields, which
/// share two cache lines with the lock.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard {
    pub(super) table: Table,
    /// The present mark of `resets`. What a charge takes gets this mark.
    pub(super) mark: ResetMark,
    pub(super) quotas: QuotaTable,
    pub(super) evictions: EvictionQueue,
    pub(super) capacity: usize,
    /// The slot at which the next sweep for full buckets begins.
    sweep_cursor: usize,
    /// The lines of the buckets that have waiters; `None` if there is no waiter.
    pub(super) lines: Option<Box<Lines>>,
    pub(super) last_ticket: u64,
    pub(super) resets: ResetLog,
    /// How many buckets were evicted.
    pub(super) evicted: u64,
    /// How many buckets were dropped because they were full again.
    pub(super) forgotten: u64,
    /// Whether sweeps keep full buckets. For tests that change the quotas of limits.
    pub(super) keep_full: bool,
}

/// How many slots each new bucket sweeps. In a store in which one key in fifty is in use, 4 let the
/// table grow to 1.7 times the buckets in use, and 2 to 3.6 times.
const SWEEP_SLOTS: usize = 4;

/// How many buckets are evicted for a new one at most. With two, a shard returns to its bound after
/// waiters made it exceed that.
const MAX_EVICTIONS: usize = 2;

/// How long a bucket has to be full before it is dropped, in microseconds. So a clock that goes
/// back by less than this changes no answer.
pub(super) const GRACE: u64 = 1_000_000;

impl Shard {
    pub(super) fn new(capacity: usize, resets: ResetLog) -> Self {
        let (quotas, evictions) = Default::default();
        Self {
            table: Table::with_max_buckets(capacity),
            mark: ResetMark::NONE,
            quotas,
            evictions,
            capacity,
            sweep_cursor: 0,
            lines: None,
            last_ticket: 0,
            resets,
            evicted: 0,
            forgotten: 0,
            keep_full: false,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Implements [`find`](crate::backend::apply::CellStore::find) of a cell store.
    #[inline(always)]
    pub(super) fn find(
        &self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Found {
        self.found(self.table.find(print.tag()), id, bucket, now)
    }

    /// Stores the state of a bucket. Searches for its slot again, as the bucket may have moved
    /// since it was read.
    pub(super) fn write(
        &mut self,
        print: Fingerprint,
        bucket: &Bucket,
        state: State,
        now: Timestamp,
    ) {
        self.store(self.table.find(print.tag()), print, bucket, state, now);
    }

    /// Drops every bucket that is full again.
    pub(super) fn purge(&mut self, now: Timestamp) {
        let mut index = 0;
        while index < self.table.slots() {
            // A removal moves the next bucket into this slot, so look at the same slot again.
            if !self.forget_idle(index, now) {
                index = index.saturating_add(1);
            }
        }
        self.table.shrink();
        // Most candidates are gone. The next eviction scans the shard, and finds the blocked
        // buckets again.
        self.evictions = EvictionQueue::default();
        self.sweep_cursor = 0;
    }

    /// What is in the slot that was found.
    #[inline(always)]
    pub(super) fn found(
        &self,
        found: Option<usize>,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Found {
        let slot = found.and_then(|index| self.table.get(index));
        let stored = slot.and_then(|slot| Some((self.quotas.get(slot.quota()?)?, slot.state())));
        match stored {
            None => Found::Absent,
            Some((numbers, state)) if numbers == bucket => Found::Own(state),
            // The bucket was stored for another quota of its limit.
            Some((numbers, state)) => record::find(numbers, bucket, state, id, now),
        }
    }

    pub(super) fn store(
        &mut self,
        found: Option<usize>,
        print: Fingerprint,
        bucket: &Bucket,
        state: State,
        now: Timestamp,
    ) {
        match found {
            Some(index) => self.update(index, print, bucket, state, now),
            None => self.add(print, bucket, state, now),
        }
    }

    fn update(
        &mut self,
        index: usize,
        print: Fingerprint,
        bucket: &Bucket,
        state: State,
        now: Timestamp,
    ) {
        let taken = self.table.len();
        let Some(slot) = self.table.get_mut(index) else { return };
        let Some(quota) = slot.quota() else { return };
        // The usual case tells the eviction queue nothing: a charge raises the rank of its bucket,
        // which the queue allows for. What lowers a rank is noted by its caller.
        if self.quotas.get(quota) == Some(bucket) && !self.evictions.has_blocked() {
            slot.update(quota, state);
            return;
        }
        // The queue knows blocked buckets by their state, which changes now.
        let was_blocked = self.evictions.forget_block(slot);
        // What was found by the numbers of another quota of the limit does not say where its windows
        // begin, and is written back so.
        let is_own = |own: &Bucket| own == bucket || own.seen_by(bucket) == *bucket;
        if self.quotas.get(quota).is_some_and(is_own) {
            slot.update(quota, state);
            if was_blocked {
                self.note(print.tag(), now);
            }
            return;
        }
        // The quota changes. The waiters keep the instants that they were promised under the old
        // one.
        let tag = print.tag();
        self.before_change(tag, true, now);
        // The slot still has the old quota and state here, from which the costs are converted.
        if let Some((stored, lines)) = self.bucket_and_lines(tag) {
            lines.rescale(stored, bucket, state, now);
        }
        // Enter the new quota before leaving the old one. Otherwise the new one could take the
        // place of the old one, while this slot still names that.
        if let Some(new) = self.quotas.enter(bucket, taken) {
            if let Some(slot) = self.table.get_mut(index) {
                slot.update(new, state);
            }
            self.quotas.leave(quota);
        }
        self.note(tag, now);
        self.grant(tag, now);
    }

    fn add(&mut self, print: Fingerprint, bucket: &Bucket, state: State, now: Timestamp) {
        // Only new buckets pay for sweeps. So a shard in which all keys are known does no extra
        // work, and one that grows looks at four slots for each bucket that it gains.
        self.sweep(now);
        // Before the evictions, which count the newcomer: its quota may be the one that has to pay.
        let Some(quota) = self.quotas.enter(bucket, self.table.len()) else { return };
        let slot = Slot::new(print.tag(), quota, state);
        // Evicts a second bucket if waiters have made the shard exceed its bound.
        for _ in 0..MAX_EVICTIONS {
            if self.table.len() >= self.capacity
                && let Some(index) = self.victim(&slot, now)
                && self.remove(index, now)
            {
                self.evicted = self.evicted.wrapping_add(1);
            }
        }
        // The victim is removed before the insertion, so the table does not grow beyond its bound.
        self.table.insert(slot);
        let (view, evictions) = self.view(now);
        evictions.note_candidate(&slot, view);
    }

    /// The slot of the bucket to evict for `newcomer`.
    pub(super) fn victim(&mut self, newcomer: &Slot, now: Timestamp) -> Option<usize> {
        let capacity = self.capacity;
        let (view, evictions) = self.view(now);
        let victim = evictions.victim(view, newcomer, capacity);
        if victim.is_some() || view.lines.is_none() {
            return victim;
        }
        // All buckets seem to have waiters. Some of these may be due, which is only noticed when a
        // bucket is touched: grant them, and look again.
        self.grant_everywhere(now);
        let (view, evictions) = self.view(now);
        evictions.victim(view, newcomer, capacity)
    }

    /// What an eviction reads of the shard, and the queue that it changes.
    pub(super) fn view(&mut self, now: Timestamp) -> (ShardView<'_>, &mut EvictionQueue) {
        let Self { table, quotas, lines, evictions, .. } = self;
        (ShardView { table, quotas, lines: lines.as_deref(), now }, evictions)
    }

    fn sweep(&mut self, now: Timestamp) {
        if self.keep_full {
            return;
        }
        for _ in 0..SWEEP_SLOTS {
            // The cursor stays where a bucket was removed: another one may have moved into that
            // slot.
            if !self.forget_idle(self.sweep_cursor, now) {
                self.sweep_cursor = self.table.after(self.sweep_cursor);
            }
        }
    }

    /// Drops the bucket of a slot if it is full again and no request waits for it.
    #[inline]
    fn forget_idle(&mut self, index: usize, now: Timestamp) -> bool {
        let is_dropped = self.is_idle(index, now) && self.remove(index, now);
        if is_dropped {
            self.forgotten = self.forgotten.wrapping_add(1);
        }
        is_dropped
    }

    /// Whether the slot holds a bucket that may be dropped without changing any answer.
    fn is_idle(&self, index: usize, now: Timestamp) -> bool {
        let idle = |slot: &Slot| Some(is_idle(self.quotas.get(slot.quota()?)?, slot.state(), now));
        self.table.get(index).and_then(idle).unwrap_or(false)
    }

    /// Removes a bucket, unless requests still wait for it.
    pub(super) fn remove(&mut self, index: usize, now: Timestamp) -> bool {
        // First grant what is due: a bucket that is full has granted all its waiters.
        if let Some(slot) = self.table.get(index).filter(|_| self.lines.is_some()) {
            let tag = slot.tag();
            self.grant(tag, now);
            if !self.end_unattended(tag) {
                return false;
            }
        }
        if let Some(slot) = self.table.remove(index) {
            self.evictions.forget_block(&slot);
            if let Some(quota) = slot.quota() {
                self.quotas.leave(quota);
            }
        }
        true
    }
}

/// Whether a bucket has been full for long enough to be dropped without changing any answer.
#[inline]
pub(super) fn is_idle(bucket: &Bucket, state: State, now: Timestamp) -> bool {
    bucket.is_droppable_when_full() && bucket.drop_at(state).plus_micros(GRACE) < now
}
