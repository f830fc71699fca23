//! What the limiter asks of the lines of this store.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::line::LineLevel;
use super::waiter::{LinePlace, LineTicket, LineTimer, LineWaiter};
use super::{Memory, several};
use crate::backend::adjustment::Adjustment;
use crate::backend::answer::Applied;
use crate::backend::charge::{BucketId, Charge};
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

impl Memory {
    /// Takes all charges, into debt if need be, or none of them. If it goes into debt, the waiter
    /// stands in the line of each bucket that did.
    pub(crate) fn reserve(
        &self,
        charges: &[Charge<'_>],
        waiter: impl FnOnce() -> Arc<LineWaiter>,
    ) -> (Applied, Option<LineTicket>) {
        several::reserve_all(&self.shards, &self.hasher, charges, waiter, || self.now())
    }

    /// Takes a waiter out of its lines. Of these refunds, which are all that it has taken, those
    /// are made that concern buckets which have granted already.
    pub(crate) fn leave(&self, ticket: &LineTicket, refunds: &[Adjustment<'_>]) {
        several::leave_all(&self.shards, &self.hasher, ticket, refunds, || self.now());
    }

    /// The mark of what a bucket has granted to a waiter, if it was reset while the waiter stood in
    /// its line.
    pub(crate) fn mark_of(&self, ticket: &LineTicket, id: BucketId<'_>) -> Option<ResetMark> {
        ticket.waiter.mark_of(|| self.hasher.fingerprint(id).tag())
    }

    /// Leaves the place in line, although no request waits for it any more.
    pub(crate) fn keep(&self, place: &LinePlace) {
        self.with_line(place, |shard, _| shard.keep(place.print.tag(), place.ticket));
    }

    /// Grants all up to this place, as it was told an instant that has come: `until`.
    pub(crate) fn grant_through(&self, place: &LinePlace, until: Timestamp) {
        self.with_line(place, |shard, now| {
            shard.grant_through(place.print.tag(), Some(place.ticket), now, until.max(now));
        });
    }

    /// Grants what is due at `until` in the line that this place is in.
    pub(crate) fn grant_until(&self, place: &LinePlace, until: Timestamp) {
        self.with_line(place, |shard, now| {
            shard.grant_through(place.print.tag(), None, now, until.max(now));
        });
    }

    /// Gives a line the timer that grants the waiters that moved forward, unless it has one.
    pub(crate) fn attach(
        &self,
        place: &LinePlace,
        timer: impl FnOnce() -> Option<Arc<dyn LineTimer>>,
    ) {
        self.with_line(place, |shard, now| shard.attach(place.print.tag(), timer, now));
    }

    /// Takes the timer of a line away, and wakes the waiters in it.
    pub(crate) fn detach(&self, place: &LinePlace) {
        self.with_line(place, |shard, now| shard.detach(place.print.tag(), now));
    }

    /// Sends all waiters with this number away that are due after this time.
    pub(crate) fn drain(&self, by: NonZeroU64, within: Duration) {
        let now = self.now();
        for shard in self.shards.iter() {
            let wakeups = {
                let mut shard = shard.lock();
                shard.drain(by, now + within, now);
                shard.take_wakeups()
            };
            wakeups.unwrap_or_default().run();
        }
    }

    /// The buckets that requests wait for.
    pub(super) fn line_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().line_count()).sum()
    }

    /// How the line of a bucket stands.
    pub(crate) fn line_level(&self, id: BucketId<'_>) -> LineLevel {
        let print = self.hasher.fingerprint(id);
        let place = LinePlace { print, ticket: 0 };
        self.with_line(&place, |shard, now| shard.line_level(print.tag(), now))
    }

    fn with_line<T>(
        &self,
        place: &LinePlace,
        work: impl FnOnce(&mut super::Shard, Timestamp) -> T,
    ) -> T {
        let mut shard = self.shards.shard_of(place.print).lock();
        let now = self.now();
        let done = work(&mut shard, now);
        let wakeups = shard.take_wakeups();
        drop(shard);
        wakeups.unwrap_or_default().run();
        done
    }
}
