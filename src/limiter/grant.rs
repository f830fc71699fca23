//! What a request took of one limit.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Limit;
use super::demand::Demand;
use super::snapshot::{Level, Snapshot};
use crate::algebra::{State, Units};
use crate::backend::{Adjustment, BucketId, Key, Origin, Reading};
use crate::clock::Timestamp;

/// What a request took of one limit and what was left: enough to settle it later.
///
/// A limit takes from one bucket, or from two of its shards.
#[derive(Clone, Debug)]
pub(crate) struct Grant<L = Arc<Limit>> {
    /// Whether the caller has set the cost. It is one otherwise.
    pub(crate) explicit_cost: bool,
    limit: L,
    pub(crate) key: Key,
    /// The shards that it may have taken from; both are zero if the limit has only one bucket.
    shards: [u32; 2],
    /// Of its bucket, or of both shards.
    readings: SmallVec<[Reading; 1]>,
    /// The time of the decision.
    pub(crate) at: Timestamp,
}

impl<L> Grant<L> {
    /// The grant of a demand with these readings: one, or two for a limit in shards.
    pub(super) fn new(demand: Demand<L>, readings: &[Reading], at: Timestamp) -> Self {
        let Demand { limit, key, explicit_cost, shards, asked_at, .. } = demand;
        let mut readings: SmallVec<[Reading; 1]> = readings.into();
        if !asked_at.is_none() {
            readings.iter_mut().for_each(|reading| *reading = reading.with_mark(asked_at));
        }
        Self { explicit_cost, limit, key, shards, readings, at }
    }

    /// The same with another handle of the limit.
    pub(super) fn with_limit<'g, M>(&'g self, limit: impl FnOnce(&'g L) -> M) -> Grant<M> {
        let &Self { explicit_cost, limit: ref own, ref key, shards, ref readings, at } = self;
        let (limit, key, readings) = (limit(own), key.clone(), readings.clone());
        Grant { explicit_cost, limit, key, shards, readings, at }
    }

    /// The wait until the buckets have what they granted. Both shards have the same.
    pub(crate) fn wait(&self) -> Duration {
        self.readings.first().map_or(Duration::ZERO, Reading::wait)
    }

    /// Each shard with its reading.
    fn each(&self) -> impl Iterator<Item = (u32, &Reading)> {
        self.shards.into_iter().zip(&self.readings)
    }

    /// The shards that paid. If both paid nothing, the first one.
    pub(crate) fn paid(&self) -> impl Iterator<Item = (u32, &Reading)> {
        let any_paid = self.readings.iter().any(|reading| reading.units() != 0);
        let paid = move |(_, reading): &(u32, &Reading)| !any_paid || reading.units() != 0;
        self.each().filter(paid).take(if any_paid { 2 } else { 1 })
    }

    /// What all buckets have paid.
    fn units(&self) -> Units {
        self.readings.iter().fold(0, |all, reading| all.saturating_add(reading.units()))
    }

    /// The store that was paid.
    pub(crate) fn origin(&self) -> Origin {
        self.readings.iter().map(Reading::origin).reduce(Origin::and).unwrap_or_default()
    }

    /// Adds what was charged on top of it. If the bucket was reset in between, the grant returns
    /// nothing: it does not know which part it took before.
    pub(crate) fn add(&mut self, more: &Self) {
        for (paid, added) in self.readings.iter_mut().zip(&more.readings) {
            *paid = paid.with_more(added);
        }
        self.at = more.at;
    }
}

impl<L: Borrow<Limit>> Grant<L> {
    pub(crate) fn limit(&self) -> &Limit {
        self.limit.borrow()
    }

    /// Whether it counts a request in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.limit().quota().is_in_flight()
    }

    /// How the limit stood after this.
    pub(crate) fn level(&self) -> Level {
        let cost = self.limit().bucket().tokens(self.units()).whole();
        Level::new(self.limit(), &self.readings, cost, self.at)
    }

    /// How the limit stands for the next request when the turn of a reservation comes; of several
    /// shards, the first that paid.
    ///
    /// A bucket in debt has nothing left until then: whatever it gains is promised to later
    /// reservations. One that was not short has what it had, as far as this process knows.
    pub(crate) fn level_at(&self, turn: Timestamp) -> Level {
        let Some((_, paid)) = self.paid().next() else { return self.level() };
        let left = paid.state();
        let State { value, ts } = self.limit().bucket().refresh(left, turn);
        let value = if left.value < 0 { value.min(0) } else { left.value };
        // The cost does not matter: waiters hold all tokens, so none remain.
        Level::admitted(State { value, ts }, 1, turn)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.limit(), self.level())
    }

    /// The adjustments after which `actual` tokens stay taken, each with the units that stay taken
    /// of its bucket.
    ///
    /// With `late`, a bucket does not return what it has gained since in place of the tokens.
    pub(crate) fn refunds(
        &self,
        actual: u64,
        late: bool,
    ) -> impl Iterator<Item = (Adjustment<'_>, Units)> {
        let bucket = self.limit().bucket();
        // A number that does not fit in units takes as much as can be counted.
        let cost = bucket.units(actual).unwrap_or(Units::MAX);
        let back = self.units().saturating_sub(cost);
        // A shard returns at most what it paid. If more is to be taken, the first one pays it.
        let second = self.readings.get(1).map_or(0, Reading::units);
        let to_second = back.clamp(0, second.max(0));
        let to_first = back.saturating_sub(to_second);
        let parts = [(to_first, true), (to_second, second != 0)];
        let parts = self.each().zip(parts).filter(|&(_, (_, named))| named);
        parts.map(move |((shard, reading), (units, _))| {
            let id = self.limit().bucket_of(&self.key).shard(shard);
            let refund = match late {
                true => Adjustment::refund_since(id, bucket, units, reading.state()),
                false => Adjustment::refund(id, bucket, units),
            };
            (refund.with_receipt(reading.receipt()), reading.units().saturating_sub(units))
        })
    }
}

impl Grant {
    /// Notes how its buckets have paid, where that is not as it was when a waiter entered their lines.
    pub(super) fn note_paid(&mut self, paid: impl Fn(BucketId<'_>, Reading) -> Option<Reading>) {
        let Self { limit, key, shards, readings, .. } = self;
        for (&shard, reading) in shards.iter().zip(readings) {
            if let Some(paid) = paid(limit.bucket_of(key).shard(shard), *reading) {
                *reading = paid;
            }
        }
    }

    /// The limit, as a shared handle.
    pub(crate) const fn shared_limit(&self) -> &Arc<Limit> {
        &self.limit
    }

    /// The limit that has its tokens last. Of equals, the first.
    pub(crate) fn slowest<'g>(
        grants: impl DoubleEndedIterator<Item = &'g Self>,
    ) -> Option<&'g Arc<Limit>> {
        grants.rev().max_by_key(|grant| grant.wait()).map(Self::shared_limit)
    }

    /// A demand for more tokens of the shards that have paid.
    pub(crate) fn more(&self, tokens: u64) -> Demand<Arc<Limit>> {
        let mut demand = Demand::new(Arc::clone(&self.limit));
        demand.key = self.key.clone();
        demand.set_cost(tokens);
        (demand.shards, demand.is_drawn) = (self.shards, true);
        demand
    }
}
