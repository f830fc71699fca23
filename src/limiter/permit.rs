//! Permits: leave to run the work, and settling it afterwards.

use std::borrow::Borrow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, iter};

use smallvec::SmallVec;

use super::Limit;
use super::demand::Demand;
use super::detached::DetachOnDrop;
use super::engine::RateLimiter;
use super::grant::Grant;
use super::rate_limited::RateLimited;
use super::snapshot::{Level, Snapshot};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Adjustment, Applied, BackendError, BucketId, FEW, Key, Reading, ResetMark};
#[cfg(feature = "memory")]
use crate::backend::{Taken, TakenPair};
use crate::clock::Timestamp;

/// Leave to run the work now; its tokens are taken.
///
/// A permit borrows the limiter and the limits, so that a call in memory which only wants to run
/// copies nothing. Call [`into_owned`](Self::into_owned) before you move it into a stream, a task or a
/// struct. [`settle`](Self::settle) and [`refund`](Self::refund) borrow nothing and can be spawned
/// as they are. Dropping a permit gives nothing back: the work then costs what was taken. Where a limit
/// counts work that runs, [`in_flight`](Self::in_flight) makes a guard of it.
///
/// The [module docs](super#a-streaming-handler) show a body that settles its permit on drop.
///
/// # Examples
///
/// If the cost is known only when the work is done, take an estimate and settle it:
///
/// ```
/// use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter};
///
/// const LLM_TOKENS: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, DAY));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// let permit = limiter.limit(&LLM_TOKENS).cost(10_000).await?;
/// assert_eq!(permit.remaining(), 30_000);
/// let snapshot = permit.settle(4_000).await?;
/// assert_eq!(snapshot.remaining(), 36_000);
/// # Ok(())
/// # }
/// ```
pub struct Permit<'l>(PermitInner<'l>);

/// Of most calls, a permit has what its [grants](Self::grants) are made of: nearly all permits are only
/// dropped. That takes 128 bytes at most, which the compiler moves without a call of `memcpy`.
#[cfg_attr(not(feature = "memory"), allow(dead_code, reason = "other stores never have a few"))]
enum PermitInner<'l> {
    One(Paid<'l, 1>),
    TwoShards(Paid<'l, 2>),
    Few(FewPaid<'l>),
    Owned(Arc<Grants>),
}

/// What one demand has paid, and what it has left in its buckets.
struct Paid<'l, const N: usize> {
    limiter: &'l RateLimiter,
    limit: &'l Limit,
    key: Key,
    at: Timestamp,
    left: [State; N],
    units: [Units; N],
    shards: [u32; 2],
    mark: ResetMark,
    explicit_cost: bool,
}

/// A few demands, each of which has paid its cost, and what they have left in their buckets.
struct FewPaid<'l> {
    limiter: &'l RateLimiter,
    first: &'l Limit,
    demands: Vec<Demand<&'l Limit>>,
    left: SmallVec<[State; FEW]>,
    at: Timestamp,
}

impl<'l> PermitInner<'l> {
    /// What each limit granted.
    fn grants(&self) -> Grants<&RateLimiter, &Limit> {
        let (limiter, first, at) = self.head();
        let one = |first| Grants { limiter, first, rest: Vec::new(), at };
        match self {
            Self::One(paid) => one(paid.grant()),
            Self::TwoShards(paid) => one(paid.grant()),
            Self::Few(FewPaid { demands, left, .. }) => {
                let grants = demands.iter().zip(left).map(|(demand, left)| {
                    let units = demand.limit.bucket().units(demand.cost).unwrap_or(0);
                    Grant::new(demand.clone(), &[taken(*left, units)], at)
                });
                // The list has a demand on the first limit, so the default is never used.
                Grants::new(limiter, grants, at)
                    .unwrap_or_else(|| one(Grant::new(Demand::new(first), &[], at)))
            }
            Self::Owned(all) => all.map(&all.limiter, |limit| &**limit),
        }
    }

    /// The limiter, the first limit and the time.
    fn head(&self) -> (&RateLimiter, &Limit, Timestamp) {
        match self {
            Self::One(paid) => (paid.limiter, paid.limit, paid.at),
            Self::TwoShards(paid) => (paid.limiter, paid.limit, paid.at),
            Self::Few(paid) => (paid.limiter, paid.first, paid.at),
            Self::Owned(all) => (&all.limiter, all.first.limit(), all.at),
        }
    }
}

impl<'l, const N: usize> Paid<'l, N> {
    /// Takes the key out of the demand.
    #[inline(always)]
    fn new(
        limiter: &'l RateLimiter,
        demand: &mut Demand<&'l Limit>,
        (left, units, mark): ([State; N], [Units; N], ResetMark),
        at: Timestamp,
    ) -> Self {
        let &mut Demand { limit, ref mut key, explicit_cost, shards, .. } = demand;
        Self { limiter, limit, key: key.take(), at, left, units, shards, mark, explicit_cost }
    }

    fn grant(&self) -> Grant<&'l Limit> {
        let &Self { limit, at, left, units, shards, mark, explicit_cost, .. } = self;
        let mut demand = Demand::new(limit);
        (demand.key, demand.explicit_cost) = (self.key.clone(), explicit_cost);
        (demand.shards, demand.asked_at) = (shards, mark);
        let readings = left.into_iter().zip(units).map(|(left, units)| taken(left, units));
        Grant::new(demand, &readings.collect::<SmallVec<[Reading; 2]>>(), at)
    }
}

/// The reading of a bucket that has admitted so many units.
const fn taken(left: State, units: Units) -> Reading {
    Reading::in_micros(Verdict::Admitted, left, units, 0)
}

/// The grants of a request, one or more, and the limiter by which they are settled.
#[derive(Debug)]
pub(super) struct Grants<R = RateLimiter, L = Arc<Limit>> {
    pub(super) limiter: R,
    pub(super) first: Grant<L>,
    pub(super) rest: Vec<Grant<L>>,
    pub(super) at: Timestamp,
}

impl<R, L: Borrow<Limit>> Grants<R, L> {
    /// `None` if there is no grant.
    pub(super) fn new(
        limiter: R,
        mut grants: impl Iterator<Item = Grant<L>>,
        at: Timestamp,
    ) -> Option<Self> {
        let first = grants.next()?;
        Some(Self { limiter, first, rest: grants.collect(), at })
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Grant<L>> + Clone {
        iter::once(&self.first).chain(&self.rest)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Grant<L>> {
        iter::once(&mut self.first).chain(&mut self.rest)
    }

    /// The same with other handles of the limiter and of the limits.
    fn map<'g, S, M>(&'g self, limiter: S, limit: impl Fn(&'g L) -> M) -> Grants<S, M> {
        let rest = self.rest.iter().map(|grant| grant.with_limit(&limit)).collect();
        Grants { limiter, first: self.first.with_limit(&limit), rest, at: self.at }
    }
}

impl<'l> Permit<'l> {
    /// The permit of a call on one bucket in memory.
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) fn of_bucket(
        limiter: &'l RateLimiter,
        demand: &mut Demand<&'l Limit>,
        reading: &Reading,
        at: Timestamp,
    ) -> Self {
        let answer = ([reading.state()], [reading.units()], reading.mark());
        Self(PermitInner::One(Paid::new(limiter, demand, answer, at)))
    }

    /// The permit of a call on one limit that any store has admitted.
    ///
    /// `None` if another store has paid as well, as with a fallback.
    pub(super) fn of_readings(
        limiter: &'l RateLimiter,
        demand: &mut Demand<&'l Limit>,
        readings: &[Reading],
        at: Timestamp,
    ) -> Option<Self> {
        let is_of_store =
            |reading: &Reading| (reading.origin(), reading.unpaid()) == Default::default();
        let mark = |own| if demand.asked_at.is_none() { own } else { demand.asked_at };
        Some(Self(match readings {
            _ if !readings.iter().all(is_of_store) => return None,
            [one] => {
                let answer = ([one.state()], [one.units()], mark(one.mark()));
                PermitInner::One(Paid::new(limiter, demand, answer, at))
            }
            [one, two] => {
                let (left, units) = ([one.state(), two.state()], [one.units(), two.units()]);
                let answer = (left, units, mark(one.mark()));
                PermitInner::TwoShards(Paid::new(limiter, demand, answer, at))
            }
            _ => return None,
        }))
    }

    /// The permit of a call on two shards in memory.
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) fn of_shards(
        limiter: &'l RateLimiter,
        demand: &mut Demand<&'l Limit>,
        &(at, mark, ref charged): &TakenPair,
    ) -> Self {
        let answer = (charged.after(), charged.paid(), mark);
        Self(PermitInner::TwoShards(Paid::new(limiter, demand, answer, at)))
    }

    /// The permit of a call on a few buckets in memory.
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) fn of_few<const N: usize>(
        limiter: &'l RateLimiter,
        first: &'l Limit,
        mut demands: Vec<Demand<&'l Limit>>,
        &Taken { now: at, mark, left }: &Taken<N>,
    ) -> Self {
        if !mark.is_none() {
            demands.iter_mut().for_each(|demand| demand.asked_at = mark);
        }
        let left = SmallVec::from_slice(&left);
        Self(PermitInner::Few(FewPaid { limiter, first, demands, left, at }))
    }

    /// The whole tokens that are left; of several limits, the smallest number.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.snapshots().map(|snapshot| snapshot.remaining()).min().unwrap_or(0)
    }

    /// Whether the store has decided, so that tokens were taken.
    ///
    /// It is false if the limiter is [switched off](RateLimiter::enabled), or if it [admits work
    /// during an outage](RateLimiter::on_failure). The snapshots then show a full limit, and
    /// settling and refunding do nothing.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        !self.limiter().state.is_off
    }

    /// How the limit stood after the decision; of several limits, the first.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.grants().first.snapshot().with_speech(&self.limiter().state.speech)
    }

    /// How all limits stood after the decision, in the order in which they were named.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        let snapshots: Vec<_> = self.0.grants().iter().map(Grant::snapshot).collect();
        let speech = &self.limiter().state.speech;
        snapshots.into_iter().map(|snapshot| snapshot.with_speech(speech))
    }

    /// Whether it took a token of a limit that counts requests in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.0.grants().iter().any(Grant::is_in_flight)
    }

    /// The instant from which the work may run: that of the decision, or of the reservation.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.0.head().2
    }

    /// Makes a permit that borrows nothing, to be moved into a stream, a task or a struct.
    #[doc(alias("acquire_owned", "OwnedSemaphorePermit"))]
    #[must_use]
    pub fn into_owned(self) -> Permit<'static> {
        Permit(PermitInner::Owned(match self.0 {
            PermitInner::Owned(grants) => grants,
            inner => {
                let all = inner.grants();
                Arc::new(all.map(all.limiter.clone(), |limit| Arc::new(Limit::clone(limit))))
            }
        }))
    }

    /// Corrects the cost to what the work really took.
    ///
    /// If `actual` is less than what was taken, the rest is returned, up to the capacity. If it is
    /// more, the difference is taken, into debt if need be: as deep as a
    /// [penalty](RateLimiter::penalize).
    ///
    /// With several limits, only those with an explicit `cost` are settled; if none has one, all
    /// are. So a limit on requests keeps its one token, whatever number of a model's tokens the
    /// work took. A limit in shards gets its tokens back in the shards that paid. A limit that counts
    /// requests [in flight](crate::Quota::in_flight) gets all of its tokens back, whatever the cost.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the store failed or did not answer.
    ///
    /// # Cancel safety
    ///
    /// The store is asked before this returns. It completes the settlement even if the future is
    /// dropped. A store that answers later needs a tokio runtime for that: the one in which the
    /// future is dropped.
    #[doc(alias("actual_cost", "reconcile", "adjust"))]
    pub fn settle(self, actual: u64) -> Settle {
        self.settle_by(Settlement::Actual(actual))
    }

    /// Returns all tokens to all limits, for work that did not run or costs nothing.
    ///
    /// A bucket that was [reset](RateLimiter::reset) since has forgiven the tokens, and gets
    /// nothing back.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    #[doc(alias("reward", "release"))]
    pub fn refund(self) -> Settle {
        self.settle_by(Settlement::All(0))
    }

    pub(crate) fn settle_by(&self, settlement: Settlement) -> Settle {
        // In place, since a layer settles many.
        if let PermitInner::Owned(all) = &self.0 {
            return Settle::new(&all.limiter, &all.first, all.rest.iter(), settlement);
        }
        let all = self.0.grants();
        Settle::new(all.limiter, &all.first, all.rest.iter(), settlement)
    }

    pub(crate) fn limiter(&self) -> &RateLimiter {
        self.0.head().0
    }

    /// The first limit.
    pub(crate) fn limit(&self) -> &Limit {
        self.0.head().1
    }

    /// Resets all buckets of its limits for its keys, all shards of them.
    pub(crate) fn reset_buckets(&self) -> DetachOnDrop<()> {
        let all = self.0.grants();
        let ids: SmallVec<[BucketId<'_>; 4]> =
            all.iter().flat_map(|grant| grant.limit().shards(&grant.key)).collect();
        DetachOnDrop::new(all.limiter.forget(&ids))
    }
}

impl Permit<'static> {
    /// The permit of these grants of a layer or a reservation; `None` if there is none.
    pub(crate) fn of_grants(
        limiter: RateLimiter,
        grants: impl Iterator<Item = Grant>,
        at: Timestamp,
    ) -> Option<Self> {
        Grants::new(limiter, grants, at).map(Self::owned)
    }

    pub(super) fn owned(grants: Grants) -> Self {
        Self(PermitInner::Owned(Arc::new(grants)))
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshots: Vec<_> = self.snapshots().collect();
        f.debug_struct("Permit").field("snapshots", &snapshots).field("at", &self.at()).finish()
    }
}

/// The future of [`Permit::settle`] and [`refund`](Permit::refund).
///
/// Its output is `Result<Snapshot, RateLimited>`: how the limit stands then; of several limits, the
/// first that was settled. It borrows nothing, so it can be spawned.
///
/// # Cancel safety
///
/// The store was asked before the future was returned. Dropping it does not undo that.
#[derive(Debug)]
#[must_use = "whether it worked is known only when it is awaited"]
pub struct Settle {
    answer: DetachOnDrop<Applied>,
    limiter: RateLimiter,
    limit: Limit,
    actual: u64,
    /// What stays taken from each bucket of that limit.
    kept: SmallVec<[Units; 2]>,
}

/// What a request keeps of its tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settlement {
    /// The limits with an explicit cost keep this many tokens; all limits, if none has one.
    Actual(u64),
    /// All limits keep this many tokens.
    All(u64),
    /// Nothing is kept. What a bucket has gained since in place of a token is not returned again.
    LateRefund,
    /// The limits that count requests in flight keep nothing, and all others what they have.
    Ended,
}

impl Settle {
    /// Asks the store to settle these grants.
    pub(crate) fn new<'g, L: Borrow<Limit> + 'g>(
        limiter: &RateLimiter,
        first: &'g Grant<L>,
        rest: impl Iterator<Item = &'g Grant<L>> + Clone,
        settlement: Settlement,
    ) -> Self {
        let grants = iter::once(first).chain(rest);
        let (actual, late, by_cost) = match settlement {
            Settlement::Actual(actual) => (actual, false, true),
            Settlement::All(actual) => (actual, false, false),
            Settlement::LateRefund | Settlement::Ended => (0, true, false),
        };
        let has_ended = matches!(settlement, Settlement::Ended);
        // If one limit has an explicit cost, limits that only count requests keep their tokens.
        let by_cost =
            by_cost && grants.clone().any(|grant| grant.explicit_cost && !grant.is_in_flight());
        let (mut concerned, mut kept) = (None, SmallVec::new());
        let mut refunds = SmallVec::<[Adjustment<'_>; 4]>::new();
        // Whatever the work has cost, it is no longer in flight. Its tokens may have been lost before,
        // and then are not returned again.
        let is_settled = |grant: &&Grant<L>| {
            grant.is_in_flight() || (!has_ended && (grant.explicit_cost || !by_cost))
        };
        for grant in grants.filter(is_settled) {
            let is_first = concerned.is_none();
            concerned.get_or_insert(grant.limit());
            limiter.state.uses.note_end(grant.limit());
            let (actual, late) = if grant.is_in_flight() { (0, true) } else { (actual, late) };
            for (refund, keeps) in grant.refunds(actual, late) {
                refunds.push(refund);
                if is_first {
                    kept.push(keeps);
                }
            }
        }
        let answer = DetachOnDrop::new(limiter.give_back(&mut refunds));
        let limit = concerned.unwrap_or(first.limit()).clone();
        Self { answer, limiter: limiter.clone(), limit, actual, kept }
    }
}

impl Future for Settle {
    type Output = Result<Snapshot, RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let snapshot = answer.and_then(|applied| {
            let adjusted = applied.readings().get(..self.kept.len()).unwrap_or_default();
            let reading = |(after, kept): (&Reading, &Units)| {
                Reading::new(Verdict::Admitted, after.state(), Duration::ZERO).taking(*kept)
            };
            let readings: SmallVec<[Reading; 2]> =
                adjusted.iter().zip(&self.kept).map(reading).collect();
            if readings.is_empty() {
                return Err(BackendError::incomplete());
            }
            let level = Level::new(&self.limit, &readings, self.actual, applied.now());
            Ok(Snapshot::new(&self.limit, level))
        });
        Poll::Ready(self.limiter.finish_call(&self.limit, snapshot))
    }
}
