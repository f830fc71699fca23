//! The lines of a shard, by bucket.

use std::collections::HashMap;
use std::mem;
use std::num::NonZeroU64;
use std::sync::Arc;

use smallvec::SmallVec;

use super::fingerprint::Tag;
use super::line::{Line, LineLevel};
use super::waiter::{LineTimer, LineWaiter, Wakeups};
use crate::algebra::{Bucket, State, Units};
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// The lines of a shard, and the wakeups to run once the shard is unlocked. Most shards have none.
#[derive(Debug, Default)]
pub(super) struct Lines {
    by_tag: HashMap<Tag, Line>,
    /// The buckets of the reservation that runs under the lock now.
    at_work: SmallVec<[Tag; 2]>,
    wakeups: Wakeups,
}

/// A stored bucket that has a line, or gets one.
#[derive(Clone, Copy)]
pub(super) struct StoredBucket<'b> {
    pub(super) tag: Tag,
    pub(super) bucket: &'b Bucket,
    pub(super) state: State,
}

impl Lines {
    pub(super) fn has(&self, tag: Tag) -> bool {
        self.by_tag.contains_key(&tag)
    }

    pub(super) fn len(&self) -> usize {
        self.by_tag.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.by_tag.is_empty() && self.wakeups.is_empty()
    }

    pub(super) fn take_wakeups(&mut self) -> Wakeups {
        mem::take(&mut self.wakeups)
    }

    /// Grants what is due. Returns whether that has ended the line.
    pub(super) fn grant(
        &mut self,
        stored: StoredBucket<'_>,
        through: Option<u64>,
        now: Timestamp,
        until: Timestamp,
    ) -> bool {
        let StoredBucket { tag, bucket, state } = stored;
        let Some(line) = self.by_tag.get_mut(&tag) else { return false };
        line.grant(bucket, state, through, [now, until], &mut self.wakeups);
        if line.is_empty() {
            // At once: as long as a shard has a line, all its adjustments take the slow path.
            return self.end_if_empty(tag);
        }
        line.arm(bucket, state, now, &mut self.wakeups);
        false
    }

    /// Adds a waiter at the end of the line. The state counts its cost as taken already. Returns
    /// whether no other request waits.
    pub(super) fn enter(
        &mut self,
        stored: StoredBucket<'_>,
        ticket: u64,
        units: Units,
        waiter: &Arc<LineWaiter>,
        now: Timestamp,
    ) -> bool {
        let StoredBucket { tag, bucket, state } = stored;
        let line = self.by_tag.entry(tag).or_default();
        line.enter(ticket, units, Some(waiter), bucket, state, now);
        line.is_alone()
    }

    /// Adds tokens at the end of the line that were taken without a waiter.
    pub(super) fn enter_unattended(
        &mut self,
        stored: StoredBucket<'_>,
        ticket: u64,
        units: Units,
        now: Timestamp,
    ) {
        let StoredBucket { tag, bucket, state } = stored;
        // Without a line no request waits that could be overtaken, and the value alone tells what
        // was taken.
        if let Some(line) = self.by_tag.get_mut(&tag) {
            line.enter(ticket, units, None, bucket, state, now);
        }
    }

    /// Notes that the line needs a timer besides those of its waiters.
    pub(super) fn need_timer(&mut self, tag: Tag) {
        if let Some(line) = self.by_tag.get_mut(&tag) {
            line.need_timer();
        }
    }

    /// Removes a waiter. Returns the new state of the bucket; `None` if it does not wait there.
    pub(super) fn leave(
        &mut self,
        stored: StoredBucket<'_>,
        ticket: u64,
        now: Timestamp,
    ) -> Option<State> {
        let StoredBucket { tag, bucket, state } = stored;
        // Refreshed, since what becomes free is cut to a bound that holds for the bucket of this
        // instant.
        self.by_tag.get_mut(&tag)?.leave(ticket, bucket, bucket.refresh(state, now), now)
    }

    pub(super) fn keep(&mut self, tag: Tag, ticket: u64) {
        if let Some(line) = self.by_tag.get_mut(&tag) {
            line.keep(ticket);
        }
    }

    /// The state of the bucket, cut to what the line allows. It held the value `before` tokens came
    /// back.
    pub(super) fn cap(&mut self, stored: StoredBucket<'_>, before: Units, now: Timestamp) -> State {
        let StoredBucket { tag, bucket, state } = stored;
        self.by_tag.get_mut(&tag).map_or(state, |line| line.cap(bucket, state, before, now))
    }

    /// Prepares the line for a change of its bucket. If the change `delays` the waiters, they are
    /// promised the instants at which they are due now.
    pub(super) fn change(&mut self, stored: StoredBucket<'_>, delays: bool, now: Timestamp) {
        let StoredBucket { tag, bucket, state } = stored;
        if let Some(line) = self.by_tag.get_mut(&tag) {
            line.change(now);
            if delays {
                line.keep_promises(bucket, state, now);
                line.note_block();
            }
        }
    }

    /// Converts the costs of the waiters to the quota that takes over, by which the bucket is in the
    /// state `new_state`.
    pub(super) fn rescale(
        &mut self,
        stored: StoredBucket<'_>,
        new: &Bucket,
        new_state: State,
        now: Timestamp,
    ) {
        let StoredBucket { tag, bucket, state } = stored;
        if let Some(line) = self.by_tag.get_mut(&tag) {
            line.rescale([bucket, new], bucket.refresh(state, now).value, new_state.value);
            // The waiters are due earlier by faster numbers. The next request is promised an instant by
            // these numbers, and must not overtake the waiters.
            line.keep_promises(new, new_state, now);
        }
    }

    /// Removes the entries of a line that have no waiter. Returns whether that has ended the line.
    pub(super) fn forget_unattended(&mut self, tag: Tag) -> bool {
        if let Some(line) = self.by_tag.get_mut(&tag) {
            line.forget_unattended();
        }
        self.end_if_empty(tag)
    }

    /// Notes a reset for the waiters of a bucket: what they are granted is taken after it.
    pub(super) fn outlive_reset(&self, tag: Tag, mark: ResetMark) {
        if let Some(line) = self.by_tag.get(&tag) {
            line.waiters().for_each(|waiter| waiter.outlive_reset(tag, mark));
        }
    }

    /// Whether a bucket must not be evicted: it has waiters, or a reservation is at work on it.
    pub(super) fn pins(&self, tag: Tag) -> bool {
        // `has_requests` and not `has`: a line of kept reservations and penalties alone protects no
        // bucket. There is no bound to these, and they would fill the store for good.
        self.by_tag.get(&tag).is_some_and(Line::has_requests) || self.at_work.contains(&tag)
    }

    /// Protects a bucket from eviction while a reservation is at work on it.
    pub(super) fn begin_work(&mut self, tag: Tag) {
        self.at_work.push(tag);
    }

    pub(super) fn end_work(&mut self) {
        self.at_work.clear();
    }

    fn end_if_empty(&mut self, tag: Tag) -> bool {
        if !self.by_tag.get(&tag).is_some_and(Line::is_empty) {
            return false;
        }
        let ended = self.by_tag.remove(&tag);
        if let Some(timer) = ended.and_then(Line::into_timer) {
            // After the unlock, as all timers: the task would otherwise sleep until an instant of a
            // line that has ended.
            self.wakeups.disarm(timer);
        }
        true
    }

    /// Whether a bucket that looks blocked is not: its clock was set back.
    pub(super) fn is_set_back(&self, stored: StoredBucket<'_>, now: Timestamp) -> bool {
        let StoredBucket { tag, state, .. } = stored;
        let line = self.by_tag.get(&tag).filter(|_| state.ts > now);
        line.is_some_and(|line| !line.is_blocked(state, now))
    }

    /// The bound of `free` of a bucket: see [`Line::free_cap`].
    pub(super) fn free_cap(&self, StoredBucket { tag, bucket, .. }: StoredBucket<'_>) -> Units {
        self.by_tag.get(&tag).map_or(bucket.capacity(), |line| line.free_cap(bucket))
    }

    /// The sum of the costs of a bucket's waiters.
    pub(super) fn units(&self, tag: Tag) -> Units {
        self.by_tag.get(&tag).map_or(0, Line::units)
    }

    /// Sets the timer of a line, unless it has one.
    pub(super) fn attach(
        &mut self,
        stored: StoredBucket<'_>,
        timer: impl FnOnce() -> Option<Arc<dyn LineTimer>>,
        now: Timestamp,
    ) {
        let StoredBucket { tag, bucket, state } = stored;
        let Some(line) = self.by_tag.get_mut(&tag) else { return };
        if !line.has_timer() {
            // It stays `None` if the waiter is polled outside of a runtime. The next waiter that is
            // polled tries again.
            line.set_timer(timer());
        }
        line.arm(bucket, state, now, &mut self.wakeups);
    }

    /// Removes the timer of a line, and wakes the waiters: one of them will attach another.
    pub(super) fn detach(&mut self, stored: StoredBucket<'_>, now: Timestamp) {
        let StoredBucket { tag, bucket, state } = stored;
        let Some(line) = self.by_tag.get_mut(&tag) else { return };
        line.set_timer(None);
        for (waiter, _) in line.requests(bucket, state, now) {
            // Not the first one alone: that may never be polled again.
            self.wakeups.wake(waiter.take_waker());
        }
    }

    /// Sends away the waiters of this limiter that are due after `end`.
    pub(super) fn drain(
        &mut self,
        stored: StoredBucket<'_>,
        by: NonZeroU64,
        end: Timestamp,
        now: Timestamp,
    ) {
        let StoredBucket { tag, bucket, state } = stored;
        let Some(line) = self.by_tag.get(&tag) else { return };
        for (waiter, due) in line.requests(bucket, state, now) {
            // It stays in line until its task has polled it and dropped it. Only then are its
            // tokens free for those behind.
            if due > end && waiter.is_drained_by(by) {
                self.wakeups.wake(waiter.drain());
            }
        }
    }

    pub(super) fn level(&self, stored: StoredBucket<'_>, now: Timestamp) -> LineLevel {
        let StoredBucket { tag, bucket, state } = stored;
        self.by_tag.get(&tag).map(|line| line.level(bucket, state, now)).unwrap_or_default()
    }

    pub(super) fn tags(&self) -> Vec<Tag> {
        self.by_tag.keys().copied().collect()
    }
}
