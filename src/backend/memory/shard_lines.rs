//! The lines of a shard, under its lock.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::fingerprint::Tag;
use super::line::LineLevel;
use super::lines::{Lines, StoredBucket};
use super::shard::Shard;
use super::waiter::{LineTimer, LineWaiter, Wakeups};
use crate::algebra::{Bucket, State, Units};
use crate::clock::Timestamp;

impl Shard {
    pub(super) const fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Ends the line of a bucket that is to be removed, unless it has waiters. Returns whether it
    /// has no line now.
    pub(super) fn end_unattended(&mut self, tag: Tag) -> bool {
        let Some(lines) = &mut self.lines else { return true };
        if lines.pins(tag) {
            return false;
        }
        lines.forget_unattended(tag);
        true
    }

    /// Protects a bucket from eviction while a reservation is at work on it.
    pub(super) fn begin_work(&mut self, tag: Tag) {
        self.lines.get_or_insert_default().begin_work(tag);
    }

    pub(super) fn end_work(&mut self) {
        if let Some(lines) = &mut self.lines {
            lines.end_work();
        }
    }

    /// Takes the wakeups to run once the shard is unlocked.
    pub(super) fn take_wakeups(&mut self) -> Option<Wakeups> {
        let lines = self.lines.as_deref_mut()?;
        // Taken before the look: wake-ups that were left behind would only run with the next call
        // on this shard. A shard without a waiter then takes the fast paths again.
        let wakeups = lines.take_wakeups();
        if lines.is_idle() {
            self.lines = None;
        }
        Some(wakeups)
    }

    /// Adds a waiter at the end of a bucket's line, after its cost was taken. Returns its ticket,
    /// and whether no other request waits.
    pub(super) fn enter(
        &mut self,
        tag: Tag,
        units: Units,
        waiter: &Arc<LineWaiter>,
        now: Timestamp,
    ) -> Option<(u64, bool)> {
        self.lines.get_or_insert_default();
        // Numbered under the lock of the decision, so the order of the tickets is the order in
        // which the bucket was charged.
        let ticket = self.next_ticket();
        let (stored, lines) = self.bucket_and_lines(tag)?;
        let is_alone = lines.enter(stored, ticket, units, waiter, now);
        Some((ticket, is_alone))
    }

    /// Adds tokens at the end of a line that were taken without a waiter.
    pub(super) fn enter_unattended(&mut self, tag: Tag, units: Units, now: Timestamp) {
        let ticket = self.next_ticket();
        if let Some((stored, lines)) = self.bucket_and_lines(tag) {
            lines.enter_unattended(stored, ticket, units, now);
        }
    }

    /// Removes a waiter from the line of a bucket. Returns whether it was still there.
    pub(super) fn leave(&mut self, tag: Tag, ticket: u64, now: Timestamp) -> bool {
        self.grant(tag, now);
        // What is due up to now has been granted, so only a waiter that still has to wait leaves.
        let left =
            self.bucket_and_lines(tag).and_then(|(stored, lines)| lines.leave(stored, ticket, now));
        let Some(state) = left else { return false };
        self.keep_state(tag, state, now);
        // What it leaves may cover the cost of those behind it already now.
        self.grant(tag, now);
        true
    }

    /// Grants what is due now in the line of a bucket.
    pub(super) fn grant(&mut self, tag: Tag, now: Timestamp) {
        self.grant_through(tag, None, now, now);
    }

    /// Grants what is due now in all lines.
    pub(super) fn grant_everywhere(&mut self, now: Timestamp) {
        let tags = self.lines.as_deref().map(Lines::tags).unwrap_or_default();
        tags.into_iter().for_each(|tag| self.grant(tag, now));
    }

    /// Grants what is due at `until`, and all up to a ticket.
    pub(super) fn grant_through(
        &mut self,
        tag: Tag,
        ticket: Option<u64>,
        now: Timestamp,
        until: Timestamp,
    ) {
        if let Some((stored, lines)) = self.bucket_and_lines(tag)
            && lines.grant(stored, ticket, now, until)
        {
            // Without a line, the bucket can be evicted again.
            self.note(tag, now);
        }
    }

    /// To be called before anything but a charge changes the bucket. Grants what is due; if the
    /// change delays the waiters, they are promised the instants at which they are due now.
    pub(super) fn before_change(&mut self, tag: Tag, delays: bool, now: Timestamp) {
        self.grant(tag, now);
        if let Some((stored, lines)) = self.bucket_and_lines(tag) {
            lines.change(stored, delays, now);
        }
    }

    /// To be called after such a change. Grants what has come back to the waiters, and cuts what is
    /// left. The bucket held the value `before`.
    pub(super) fn after_change(&mut self, tag: Tag, before: Units, now: Timestamp) {
        // Tokens may have come back: the bucket may be evicted sooner than the queue knows.
        self.note(tag, now);
        // Granted before the value is cut: what the waiters get must not count against the bound of
        // what may be saved up.
        self.grant(tag, now);
        let cap = self.bucket_and_lines(tag).map(|(stored, lines)| lines.cap(stored, before, now));
        if let Some(state) = cap {
            self.keep_state(tag, state, now);
        }
    }

    pub(super) fn need_timer(&mut self, tag: Tag) {
        if let Some(lines) = &mut self.lines {
            lines.need_timer(tag);
        }
    }

    pub(super) fn keep(&mut self, tag: Tag, ticket: u64) {
        if let Some(lines) = &mut self.lines {
            lines.keep(tag, ticket);
        }
    }

    pub(super) fn attach(
        &mut self,
        tag: Tag,
        timer: impl FnOnce() -> Option<Arc<dyn LineTimer>>,
        now: Timestamp,
    ) {
        self.grant(tag, now);
        if let Some((stored, lines)) = self.bucket_and_lines(tag) {
            lines.attach(stored, timer, now);
        }
    }

    pub(super) fn detach(&mut self, tag: Tag, now: Timestamp) {
        if let Some((stored, lines)) = self.bucket_and_lines(tag) {
            lines.detach(stored, now);
        }
    }

    /// Sends away the waiters of this limiter that are due after `end`.
    pub(super) fn drain(&mut self, by: NonZeroU64, end: Timestamp, now: Timestamp) {
        let tags = self.lines.as_deref().map(Lines::tags).unwrap_or_default();
        for tag in tags {
            // Those that are due by now run in spite of the drain.
            self.grant(tag, now);
            if let Some((stored, lines)) = self.bucket_and_lines(tag) {
                lines.drain(stored, by, end, now);
            }
        }
    }

    /// The quota and the value of a bucket that has a line.
    pub(super) fn line_value(&mut self, tag: Tag, now: Timestamp) -> Option<(Bucket, Units)> {
        let (StoredBucket { bucket, state, .. }, lines) = self.bucket_and_lines(tag)?;
        lines.has(tag).then(|| (*bucket, bucket.refresh(state, now).value))
    }

    /// Whether a bucket that has a line looks blocked, and is not: its clock was set back.
    pub(super) fn is_set_back(&mut self, tag: Tag, now: Timestamp) -> bool {
        self.bucket_and_lines(tag).is_some_and(|(stored, lines)| lines.is_set_back(stored, now))
    }

    pub(super) fn line_count(&self) -> usize {
        self.lines.as_deref().map_or(0, Lines::len)
    }

    pub(super) fn line_level(&mut self, tag: Tag, now: Timestamp) -> LineLevel {
        self.grant(tag, now);
        self.bucket_and_lines(tag)
            .map(|(stored, lines)| lines.level(stored, now))
            .unwrap_or_default()
    }

    /// A number that no entry of this shard has had: a line may end while its places are still
    /// known.
    const fn next_ticket(&mut self) -> u64 {
        // 64 bits last for hundreds of years at a billion a second.
        self.last_ticket = self.last_ticket.saturating_add(1);
        self.last_ticket
    }

    /// A stored bucket, and the lines of the shard.
    pub(super) fn bucket_and_lines(&mut self, tag: Tag) -> Option<(StoredBucket<'_>, &mut Lines)> {
        let lines = self.lines.as_deref_mut()?;
        let slot = self.table.get(self.table.find(tag)?)?;
        let bucket = self.quotas.get(slot.quota()?)?;
        Some((StoredBucket { tag, bucket, state: slot.state() }, lines))
    }

    pub(super) fn keep_state(&mut self, tag: Tag, state: State, now: Timestamp) {
        if let Some(slot) = self.table.find_mut(tag) {
            // Before the state changes, by which the queue finds the block.
            self.evictions.forget_block(slot);
            slot.set_state(state);
        }
        self.note(tag, now);
    }

    /// Notes a bucket for eviction: it may be evicted sooner than before, or is blocked.
    pub(super) fn note(&mut self, tag: Tag, now: Timestamp) {
        let (view, evictions) = self.view(now);
        if let Some(slot) = view.table.find(tag).and_then(|index| view.table.get(index)) {
            evictions.note_candidate(slot, view);
        }
    }
}
