//! The interface of the lines for the limiter.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::line::LineLevel;
use super::waiter::{LinePlace, LineTicket, LineTimer, LineWaiter, Wakeups};
use super::{Memory, several};
use crate::backend::adjustment::Adjustment;
use crate::backend::answer::Applied;
use crate::backend::charge::{BucketId, Charge};
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

impl Memory {
    /// Takes all charges, into debt if need be, or none of them. If they go into debt, the waiter
    /// joins the line of each bucket that did.
    pub(crate) fn reserve(
        &self,
        charges: &[Charge<'_>],
        waiter: impl FnOnce() -> Arc<LineWaiter>,
    ) -> (Applied, Option<LineTicket>) {
        let now = || self.now();
        let reserved = several::reserve_all(&self.shards, &self.hasher, charges, waiter, now);
        self.keep_names(charges.iter().flat_map(Charge::ids));
        reserved
    }

    /// Removes a waiter from its lines. `refunds` gives back all that it has taken; those are made
    /// that concern buckets which have granted already.
    pub(crate) fn leave(&self, ticket: &LineTicket, refunds: &[Adjustment<'_>]) {
        several::leave_all(&self.shards, &self.hasher, ticket, refunds, || self.now());
    }

    /// The mark of what a bucket has granted to a waiter, if it was reset while the waiter stood in
    /// line.
    pub(crate) fn mark_of(&self, ticket: &LineTicket, id: BucketId<'_>) -> Option<ResetMark> {
        ticket.waiter.mark_of(|| self.hasher.fingerprint(id).tag())
    }

    /// Keeps the place in line without its waiter.
    pub(crate) fn keep(&self, place: &LinePlace) {
        self.with_line(place, |shard, _| shard.keep(place.print.tag(), place.ticket));
    }

    /// Grants all up to this place, whose promised instant `until` has come.
    pub(crate) fn grant_through(&self, place: &LinePlace, until: Timestamp) {
        self.with_line(place, |shard, now| {
            // The runtime's timer may fire a little before the store's clock shows `until`. The
            // waiter was told that instant, so it counts.
            shard.grant_through(place.print.tag(), Some(place.ticket), now, until.max(now));
        });
    }

    /// Grants what is due at `until` in the line of this place.
    pub(crate) fn grant_until(&self, place: &LinePlace, until: Timestamp) {
        self.with_line(place, |shard, now| {
            shard.grant_through(place.print.tag(), None, now, until.max(now));
        });
    }

    /// Sets the timer of a line, unless it has one.
    pub(crate) fn attach(
        &self,
        place: &LinePlace,
        timer: impl FnOnce() -> Option<Arc<dyn LineTimer>>,
    ) {
        self.with_line(place, |shard, now| shard.attach(place.print.tag(), timer, now));
    }

    /// Removes the timer of a line, and wakes its waiters.
    pub(crate) fn detach(&self, place: &LinePlace) {
        self.with_line(place, |shard, now| shard.detach(place.print.tag(), now));
    }

    /// Sends away all waiters of this limiter that are due later than `within` from now.
    pub(crate) fn drain(&self, by: NonZeroU64, within: Duration) {
        let now = self.now();
        for shard in self.shards.iter() {
            let wakeups = {
                let mut shard = shard.lock();
                // Unlocked before the next shard, so that a drain of many waiters stops no other
                // shard meanwhile. A waiter in several lines is drained if its turn is too late in
                // one of them.
                shard.drain(by, now + within, now);
                shard.take_wakeups()
            };
            wakeups.into_iter().for_each(Wakeups::run);
        }
    }

    /// The number of buckets that have a line.
    pub(super) fn line_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().line_count()).sum()
    }

    /// The state of a bucket's line.
    pub(crate) fn line_level(&self, id: BucketId<'_>) -> LineLevel {
        let print = self.hasher.fingerprint(id);
        // No entry has the ticket 0, and the level needs none.
        let place = LinePlace { print, ticket: 0 };
        self.with_line(&place, |shard, now| shard.line_level(print.tag(), now))
    }

    fn with_line<T>(
        &self,
        place: &LinePlace,
        work: impl FnOnce(&mut super::Shard, Timestamp) -> T,
    ) -> T {
        let mut shard = self.shards.shard_of(place.print).lock();
        // Under the lock, so that a call that comes later does not read an earlier time.
        let now = self.now();
        let done = work(&mut shard, now);
        // Run them after the unlock: a waker may call this store again.
        let wakeups = shard.take_wakeups();
        drop(shard);
        wakeups.into_iter().for_each(Wakeups::run);
        done
    }
}
