//! What a request took of one limit.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;
use std::{iter, mem};

use super::Limit;
use super::demand::Demand;
use super::snapshot::{Level, Snapshot, sum_of_shards};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Adjustment, BucketId, Key, Reading, ResetMark};
use crate::clock::Timestamp;
use crate::quota::Quota;

/// What a request took of one limit, and what was left: enough to settle it, and to tell how the
/// limit stood.
///
/// A limit takes from one bucket, or from two of its shards. Nothing that follows from the rest is
/// kept, as every permit carries a grant: with the limiter it has 128 bytes, which are moved
/// without a call.
// What is copied as a whole lies together. First is what has values to spare, in which the compiler
// keeps whether a result is a permit: if it did so within the key, the key would be moved in
// pieces.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Grant<L = Arc<Limit>> {
    cost: CostOrigin,
    shards: ShardPair,
    /// How many resets the store knew of when they have paid.
    mark: ResetMark,
    limit: L,
    key: Key,
    /// In microseconds, until the buckets have what they were granted. It does not follow from what
    /// is left: a bucket that is named twice waits less for the first.
    wait: u64,
    /// What each bucket has paid.
    units: [Units; 2],
    /// What each bucket held after that.
    after: [State; 2],
    at: Timestamp,
}

/// Whether the caller has set the cost; a request costs one token otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CostOrigin {
    Usual,
    Explicit,
}

impl CostOrigin {
    #[inline(always)]
    const fn new(explicit: bool) -> Self {
        if explicit { Self::Explicit } else { Self::Usual }
    }
}

/// The numbers of two shards, in twelve bits each: a quota has at most
/// [`Quota::MAX_SHARDS`](crate::Quota::MAX_SHARDS).
#[derive(Clone, Copy, Debug)]
struct ShardPair([u8; 3]);

const _: () = assert!(Quota::MAX_SHARDS <= 1 << 12, "a pair of shards has twelve bits for each");

impl ShardPair {
    const FIRST: Self = Self([0; 3]);

    const fn new([one, other]: [u32; 2]) -> Self {
        let [low, high, ..] = one.to_le_bytes();
        let [other_low, other_high, ..] = other.to_le_bytes();
        Self([low, high | other_high << 4, other_low])
    }

    fn numbers(self) -> [u32; 2] {
        let [low, highs, other_low] = self.0;
        [u16::from_le_bytes([low, highs & 0xf]), u16::from_le_bytes([other_low, highs >> 4])]
            .map(u32::from)
    }
}

/// One bucket that a grant took from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaidBucket {
    pub(crate) shard: u32,
    pub(crate) units: Units,
    pub(crate) after: State,
    pub(crate) mark: ResetMark,
}

impl<L> Grant<L> {
    /// What a demand on one bucket was granted; it takes the key out.
    #[inline(always)]
    pub(super) fn from_reading(demand: &mut Demand<L>, reading: &Reading, at: Timestamp) -> Self
    where
        L: Copy,
    {
        let &mut Demand { limit, ref mut key, explicit_cost, .. } = demand;
        Self {
            cost: CostOrigin::new(explicit_cost),
            shards: ShardPair::FIRST,
            mark: reading.mark(),
            limit,
            key: mem::replace(key, Key::GLOBAL),
            wait: 0,
            units: [reading.units(), 0],
            after: [reading.state(), NO_STATE],
            at,
        }
    }

    /// What a demand was granted that was answered with these readings: one, or two for a limit in
    /// shards.
    pub(super) fn new(demand: Demand<L>, readings: &[Reading], at: Timestamp) -> Self {
        let Demand { limit, key, explicit_cost, shards, asked_at, .. } = demand;
        let (units, after) = paid(readings);
        let (cost, shards) = (CostOrigin::new(explicit_cost), ShardPair::new(shards));
        let mark = match readings.first() {
            Some(reading) if asked_at.is_none() => reading.mark(),
            _ => asked_at,
        };
        Self { cost, shards, mark, limit, key, wait: wait_micros(readings), units, after, at }
    }

    /// The time of the decision.
    pub(crate) const fn at(&self) -> Timestamp {
        self.at
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// Whether the caller has set its cost.
    pub(crate) const fn has_explicit_cost(&self) -> bool {
        matches!(self.cost, CostOrigin::Explicit)
    }

    /// Counts what was charged on top of it. If the bucket was reset in between, none of it comes
    /// back: which part of it was taken before that is not kept.
    pub(crate) fn add(&mut self, readings: &[Reading], at: Timestamp) {
        let before = self.units;
        (self.units, self.after) = paid(readings);
        for (units, before) in self.units.iter_mut().zip(before) {
            *units = units.saturating_add(before);
        }
        self.wait = wait_micros(readings);
        self.at = at;
    }
}

/// The buckets of one charge answer the same.
fn wait_micros(readings: &[Reading]) -> u64 {
    let wait = readings.first().map_or(Duration::ZERO, Reading::wait);
    u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)
}

/// What each bucket has paid, and what it held after that.
fn paid(readings: &[Reading]) -> ([Units; 2], [State; 2]) {
    (map_pair(readings, 0, Reading::units), map_pair(readings, NO_STATE, Reading::state))
}

fn map_pair<T: Copy>(readings: &[Reading], none: T, what: impl Fn(&Reading) -> T) -> [T; 2] {
    [readings.first().map_or(none, &what), readings.get(1).map_or(none, &what)]
}

const NO_STATE: State = State { value: 0, ts: Timestamp::UNIX_EPOCH };

impl<L: Borrow<Limit>> Grant<L> {
    pub(crate) fn limit(&self) -> &Limit {
        self.limit.borrow()
    }

    /// The same with a limit of its own.
    pub(crate) fn to_owned_by(&self, own: impl FnOnce(&L) -> Arc<Limit>) -> Grant {
        let &Self { cost, shards, mark, ref limit, ref key, wait, units, after, at } = self;
        Grant { cost, shards, mark, limit: own(limit), key: key.clone(), wait, units, after, at }
    }

    fn buckets(&self) -> impl Iterator<Item = PaidBucket> + Clone + use<L> {
        let &Self { shards, mark, units: [units, other_units], after: [after, rest], .. } = self;
        let [shard, other] = shards.numbers();
        let first = PaidBucket { shard, units, after, mark };
        let second = PaidBucket { shard: other, units: other_units, after: rest, mark };
        iter::once(first).chain(self.limit().is_in_shards().then_some(second))
    }

    /// The buckets that paid. Of two shards, one that did not is left out, but for the first if
    /// both did not.
    pub(crate) fn paid(&self) -> impl Iterator<Item = PaidBucket> + Clone + use<L> {
        let nothing_paid = self.units == [0; 2];
        self.buckets()
            .enumerate()
            .filter(move |&(nth, bucket)| bucket.units != 0 || (nth == 0 && nothing_paid))
            .map(|(_, bucket)| bucket)
    }

    /// All buckets that the limit has for the key, whether they have paid or not.
    pub(super) fn all_shards(&self) -> impl Iterator<Item = BucketId<'_>> {
        self.limit().shards(&self.key)
    }

    /// How the limit stood after this.
    pub(crate) fn level(&self) -> Level {
        let (limit, [mut state, _]) = (self.limit(), self.after);
        if limit.is_in_shards() {
            let held = self.buckets().map(|bucket| (bucket.after.value, bucket.units));
            state.value = sum_of_shards(held, limit.quota().shard_count());
        }
        let paid = self.units.iter().fold(0_i64, |all, units| all.saturating_add(*units));
        let cost = limit.bucket().tokens(paid).whole();
        match self.wait {
            0 => Level::admitted(state, cost, self.at),
            wait => Level {
                verdict: Verdict::Reserved,
                wait: Some(Duration::from_micros(wait)),
                ..Level::admitted(state, cost, self.at)
            },
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.limit(), self.level())
    }

    /// What is to be given back to each bucket so that `actual` tokens stay taken, and what stays
    /// taken there.
    ///
    /// With `late`, what a bucket has gained in place of it is not given a second time.
    pub(crate) fn refunds(
        &self,
        actual: u64,
        late: bool,
    ) -> impl Iterator<Item = (Adjustment<'_>, Units)> {
        let bucket = self.limit().bucket();
        // More than can be counted leaves a bucket as deep as numbers go.
        let cost = bucket.units(actual).unwrap_or(Units::MAX);
        let [first, second] = self.units;
        let back = first.saturating_add(second).saturating_sub(cost);
        // Neither gets more than it has paid, and what is short is taken from the first.
        let to_second = back.clamp(0, second.max(0));
        let to_first = back.saturating_sub(to_second);
        let parts = [(to_first, true), (to_second, second != 0)];
        let parts = self.buckets().zip(parts).filter(|&(_, (_, named))| named);
        parts.map(move |(paid, (units, _))| {
            let id = self.limit().bucket_of(&self.key).shard(paid.shard);
            let refund = match late {
                true => Adjustment::refund_since(id, bucket, units, paid.after),
                false => Adjustment::refund(id, bucket, units),
            };
            (refund.taken_at(paid.mark), paid.units.saturating_sub(units))
        })
    }
}

impl Grant {
    /// The buckets that paid were reset while a waiter stood in their lines: what they have paid is
    /// taken after that.
    ///
    /// If that is true of one of two shards, and the other had granted before, neither gets
    /// anything back: there is one mark for both.
    #[cfg(feature = "memory")]
    pub(super) fn outlive_resets(&mut self, mark_of: impl Fn(BucketId<'_>) -> Option<ResetMark>) {
        let id = |paid: PaidBucket| self.limit.bucket_of(&self.key).shard(paid.shard);
        // The store marks all buckets that it resets at once alike.
        let marks = self.paid().map(|paid| mark_of(id(paid)));
        if let Some(mark) = marks.reduce(|one, other| one.and(other)).flatten() {
            self.mark = mark;
        }
    }

    /// The limit, as it is shared.
    pub(crate) const fn shared_limit(&self) -> &Arc<Limit> {
        &self.limit
    }

    /// A demand for so many tokens more, of the shards that have paid.
    pub(crate) fn more(&self, tokens: u64) -> Demand<Arc<Limit>> {
        let mut demand = Demand::new(Arc::clone(&self.limit));
        demand.key = self.key.clone();
        demand.set_cost(tokens);
        demand.shards = self.shards.numbers();
        demand
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_shards_is_read_as_it_was_written() {
        for one in 0..Quota::MAX_SHARDS {
            for other in [0, 1, 15, 16, 255, 256, 511, one, Quota::MAX_SHARDS - 1] {
                assert_eq!(ShardPair::new([one, other]).numbers(), [one, other]);
                assert_eq!(ShardPair::new([other, one]).numbers(), [other, one]);
            }
        }
    }
}
