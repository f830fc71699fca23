//! What a request took of one limit.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;
use std::{iter, mem};

use super::Limit;
use super::demand::Demand;
use super::snapshot::{Level, Snapshot, sum_of_shards};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Adjustment, BucketId, Key, Origin, Reading, Receipt, ResetMark, Unpaid};
use crate::clock::Timestamp;
use crate::quota::Quota;

/// What a request took of one limit and what was left: enough to settle it later.
///
/// A limit takes from one bucket, or from two of its shards. Every permit carries a grant, so it
/// has nothing that can be derived from the rest: with the limiter it has 128 bytes, which the
/// compiler moves without a call of `memcpy`.
// The order of the fields is fixed. Those that are copied together are neighbours. `explicit_cost` is
// first, since the compiler keeps the discriminant of `Result<Permit, _>` in its unused values. Were
// it inside of the key, the key would be copied in pieces.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Grant<L = Arc<Limit>> {
    /// Whether the caller has set the cost. It is one otherwise.
    pub(crate) explicit_cost: bool,
    shards: PaidShards,
    /// How many resets the store had recorded when the buckets paid.
    mark: ResetMark,
    limit: L,
    pub(crate) key: Key,
    wait: GrantWait,
    /// What each bucket paid.
    units: [Units; 2],
    /// What each bucket held after that.
    after: [State; 2],
    /// The time of the decision.
    pub(crate) at: Timestamp,
}

/// The numbers of two shards in ten bits each, and which store was paid.
#[derive(Clone, Copy, Debug)]
struct PaidShards([u8; 3]);

const _: () = assert!(Quota::MAX_SHARDS <= 1 << 10, "a pair of shards has ten bits for each");

impl PaidShards {
    #[inline(always)]
    const fn new([one, other]: [u32; 2], paid: Origin) -> Self {
        let [low, high, ..] = one.to_le_bytes();
        let [other_low, other_high, ..] = other.to_le_bytes();
        let paid = match paid {
            Origin::Store => 0,
            Origin::Fallback => 1,
            Origin::Unknown => 2,
        };
        Self([low, other_low, high | other_high << 2 | paid << 4])
    }

    fn numbers(self) -> [u32; 2] {
        let Self([low, other_low, rest]) = self;
        [u16::from_le_bytes([low, rest & 3]), u16::from_le_bytes([other_low, rest >> 2 & 3])]
            .map(u32::from)
    }

    const fn paid(self) -> Origin {
        let Self([.., rest]) = self;
        match rest >> 4 {
            0 => Origin::Store,
            1 => Origin::Fallback,
            _ => Origin::Unknown,
        }
    }
}

/// The wait until the buckets have what they granted, and what a local store has not paid of it.
///
/// The wait cannot be derived from what the buckets hold: if a call names a bucket twice, the first
/// charge waits less. It has 53 bits of microseconds, which are 285 years.
#[derive(Clone, Copy, Debug)]
struct GrantWait(u64);

impl GrantWait {
    #[inline(always)]
    fn new(micros: u64, unpaid: Unpaid) -> Self {
        let wait = micros.min(u64::MAX >> Unpaid::BITS) << Unpaid::BITS;
        Self(wait | u64::from(unpaid.number()))
    }

    fn with_unpaid(self, unpaid: Unpaid) -> Self {
        Self(self.0 >> Unpaid::BITS << Unpaid::BITS | u64::from(unpaid.number()))
    }

    const fn wait(self) -> Duration {
        Duration::from_micros(self.0 >> Unpaid::BITS)
    }

    const fn unpaid(self) -> Unpaid {
        Unpaid::from_low_bits(self.0)
    }
}

/// One bucket that a grant took from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaidBucket {
    pub(crate) shard: u32,
    pub(crate) units: Units,
    pub(crate) after: State,
    pub(crate) mark: ResetMark,
    unpaid: Unpaid,
}

impl PaidBucket {
    /// The units that the local store of a fallback has not paid.
    pub(crate) fn unpaid(&self) -> Units {
        self.unpaid.of(self.units)
    }
}

impl<L> Grant<L> {
    /// The grant of a demand on one bucket. It takes the key out of the demand.
    #[inline(always)]
    pub(super) fn from_reading(demand: &mut Demand<L>, reading: &Reading, at: Timestamp) -> Self
    where
        L: Copy,
    {
        let &mut Demand { limit, ref mut key, explicit_cost, .. } = demand;
        Self {
            explicit_cost,
            shards: PaidShards::new([0; 2], reading.origin()),
            mark: reading.mark(),
            limit,
            key: mem::replace(key, Key::GLOBAL),
            wait: GrantWait::new(0, reading.unpaid()),
            units: [reading.units(), 0],
            after: [reading.state(), NO_STATE],
            at,
        }
    }

    /// The grant of a demand with these readings: one, or two for a limit in shards.
    pub(super) fn new(demand: Demand<L>, readings: &[Reading], at: Timestamp) -> Self {
        let Demand { limit, key, explicit_cost, shards, asked_at, .. } = demand;
        // Both buckets have the same wait and the same mark. Of what a local store has not paid of
        // them, the larger part counts.
        let (units, after, origin, unpaid) = match readings {
            [] => ([0; 2], [NO_STATE; 2], Origin::Store, Unpaid::NOTHING),
            [one] => ([one.units(), 0], [one.state(), NO_STATE], one.origin(), one.unpaid()),
            [one, two, ..] => (
                [one.units(), two.units()],
                [one.state(), two.state()],
                one.origin().and(two.origin()),
                one.unpaid().max(two.unpaid()),
            ),
        };
        let (micros, mark) = readings
            .first()
            .map_or((0, ResetMark::NONE), |first| (first.wait_micros(), first.mark()));
        let mark = if asked_at.is_none() { mark } else { asked_at };
        let (shards, wait) = (PaidShards::new(shards, origin), GrantWait::new(micros, unpaid));
        Self { explicit_cost, shards, mark, limit, key, wait, units, after, at }
    }

    /// The wait until the buckets have what they granted.
    pub(crate) const fn wait(&self) -> Duration {
        self.wait.wait()
    }

    /// The store that was paid.
    pub(crate) const fn origin(&self) -> Origin {
        self.shards.paid()
    }

    /// Adds what was charged on top of it. If the bucket was reset in between, the grant returns
    /// nothing: it does not know which part it took before.
    pub(crate) fn add(&mut self, more: &Self) {
        let [paid, added] = [sum(self.units), sum(more.units)];
        let unpaid = self.wait.unpaid().of(paid).saturating_add(more.wait.unpaid().of(added));
        self.wait = self.wait.with_unpaid(Unpaid::part(unpaid, paid.saturating_add(added)));
        self.shards = PaidShards::new(self.shards.numbers(), self.origin().and(more.origin()));
        for (units, added) in self.units.iter_mut().zip(more.units) {
            *units = units.saturating_add(added);
        }
        (self.after, self.at) = (more.after, more.at);
    }
}

/// What both buckets have paid.
fn sum(units: [Units; 2]) -> Units {
    units.iter().fold(0, |all, units| all.saturating_add(*units))
}

const NO_STATE: State = State { value: 0, ts: Timestamp::UNIX_EPOCH };

impl<L: Borrow<Limit>> Grant<L> {
    pub(crate) fn limit(&self) -> &Limit {
        self.limit.borrow()
    }

    /// Whether it counts a request in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.limit().quota().is_in_flight()
    }

    /// The same grant with its own handle of the limit.
    pub(crate) fn to_owned_by(&self, own: impl FnOnce(&L) -> Arc<Limit>) -> Grant {
        let &Self { explicit_cost, shards, mark, wait, units, after, at, .. } = self;
        let (limit, key) = (own(&self.limit), self.key.clone());
        Grant { explicit_cost, shards, mark, limit, key, wait, units, after, at }
    }

    fn buckets(&self) -> impl Iterator<Item = PaidBucket> + Clone + use<L> {
        let &Self { shards, mark, units: [units, other_units], after: [after, rest], .. } = self;
        let ([shard, other], unpaid) = (shards.numbers(), self.wait.unpaid());
        let first = PaidBucket { shard, units, after, mark, unpaid };
        let second = PaidBucket { shard: other, units: other_units, after: rest, mark, unpaid };
        iter::once(first).chain(self.limit().is_in_shards().then_some(second))
    }

    /// The buckets that paid. If both shards paid nothing, the first one.
    pub(crate) fn paid(&self) -> impl Iterator<Item = PaidBucket> + Clone + use<L> {
        let nothing_paid = self.units == [0; 2];
        self.buckets()
            .enumerate()
            .filter(move |&(nth, bucket)| bucket.units != 0 || (nth == 0 && nothing_paid))
            .map(|(_, bucket)| bucket)
    }

    /// All buckets of the limit for the key, whether they paid or not.
    pub(super) fn all_shards(&self) -> impl Iterator<Item = BucketId<'_>> {
        self.limit().shards(&self.key)
    }

    /// How the limit stood after this.
    pub(crate) fn level(&self) -> Level {
        let (limit, [mut state, _]) = (self.limit(), self.after);
        if limit.is_in_shards() {
            let held = self.buckets().map(|bucket| (bucket.after.value, bucket.units));
            state.value = sum_of_shards(held, limit.quota().get_shards());
        }
        let cost = limit.bucket().tokens(sum(self.units)).whole();
        match self.wait() {
            Duration::ZERO => Level::admitted(state, cost, self.at),
            wait => Level {
                verdict: Verdict::Reserved,
                wait: Some(wait),
                ..Level::admitted(state, cost, self.at)
            },
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.limit(), self.level())
    }

    /// The receipt of what a bucket paid.
    pub(crate) fn receipt(&self, paid: &PaidBucket) -> Receipt {
        Receipt::new(paid.mark, self.origin(), paid.unpaid(), paid.after)
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
        let [first, second] = self.units;
        let back = first.saturating_add(second).saturating_sub(cost);
        // A shard returns at most what it paid. If more is to be taken, the first one pays it.
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
            (refund.with_receipt(self.receipt(&paid)), paid.units.saturating_sub(units))
        })
    }
}

impl Grant {
    /// Notes that the buckets were reset while a waiter stood in their lines: they paid after the
    /// reset.
    ///
    /// There is one mark for both shards. If one was reset and the other had granted before, a
    /// refund returns nothing to either.
    #[cfg(feature = "memory")]
    pub(super) fn outlive_resets(&mut self, mark_of: impl Fn(BucketId<'_>) -> Option<ResetMark>) {
        let id = |paid: PaidBucket| self.limit.bucket_of(&self.key).shard(paid.shard);
        // Buckets that were reset together have the same mark.
        let marks = self.paid().map(|paid| mark_of(id(paid)));
        if let Some(mark) = marks.reduce(|one, other| one.and(other)).flatten() {
            self.mark = mark;
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
        demand.shards = self.shards.numbers();
        demand.is_drawn = true;
        demand
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_shards_and_its_store_are_read_as_they_were_written() {
        let stores = [Origin::Store, Origin::Fallback, Origin::Unknown];
        for one in 0..Quota::MAX_SHARDS {
            for other in [0, 1, 15, 16, 255, 256, 511, one, Quota::MAX_SHARDS - 1] {
                for pair in [[one, other], [other, one]] {
                    for paid in stores {
                        let written = PaidShards::new(pair, paid);
                        assert_eq!((written.numbers(), written.paid()), (pair, paid));
                    }
                }
            }
        }
    }
}
