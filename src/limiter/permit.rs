//! Permits: leave to run the work, and settling it afterwards.

use std::borrow::Borrow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, iter, mem};

use smallvec::SmallVec;

use super::Limit;
use super::complete_answer::next_readings;
use super::demand::{Demand, Demands};
use super::detached::DetachOnDrop;
use super::engine::RateLimiter;
use super::grant::Grant;
use super::rate_limited::RateLimited;
use super::snapshot::{Level, Snapshot};
use crate::algebra::{Units, Verdict};
use crate::backend::{Adjustment, Applied, BackendError, BucketId, Reading};
use crate::clock::Timestamp;

/// Leave to run the work now; its tokens are taken.
///
/// A permit borrows the limiter and the limits, so that a request that only wants to run copies
/// nothing. Call [`into_owned`](Self::into_owned) before you move it into a stream, a task or a
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

/// The grants of a permit, with the limiter and the time.
enum PermitInner<'l> {
    One { limiter: &'l RateLimiter, grant: Grant<&'l Limit> },
    Several(AnsweredDemands<'l>),
    Owned(Arc<Grants>),
}

/// The demands on several limits and the readings of their buckets.
///
/// Nearly all permits are only dropped, so [grants](Self::grants) are made of these when they are
/// needed.
struct AnsweredDemands<'l> {
    limiter: &'l RateLimiter,
    first: &'l Limit,
    demands: Vec<Demand<&'l Limit>>,
    readings: Vec<Reading>,
    at: Timestamp,
}

impl<'l> AnsweredDemands<'l> {
    /// What each limit granted.
    fn grants(&self) -> Grants<&'l RateLimiter, &'l Limit> {
        let &Self { limiter, first, ref demands, ref readings, at } = self;
        let mut rest = readings.as_slice();
        let mut grants = demands
            .iter()
            .map(|demand| Grant::new(demand.clone(), next_readings(demand, &mut rest), at));
        // The list has a demand on the first limit, so the default is never used.
        let first = grants.next().unwrap_or_else(|| Grant::new(Demand::new(first), &[], at));
        let rest = grants.collect();
        Grants { limiter, first, rest, at }
    }
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

    fn snapshots(&self) -> Vec<Snapshot> {
        self.iter().map(Grant::snapshot).collect()
    }
}

impl<'l> Permit<'l> {
    /// The permit of a call on one bucket.
    #[inline(always)]
    pub(super) const fn from_grant(limiter: &'l RateLimiter, grant: Grant<&'l Limit>) -> Self {
        Self(PermitInner::One { limiter, grant })
    }

    /// The permit of a complete answer that admits these demands.
    #[inline(always)]
    pub(super) fn new(limiter: &'l RateLimiter, demands: Demands<'l>, applied: Applied) -> Self {
        let at = applied.now();
        Self(match demands {
            Demands::One([demand]) => {
                PermitInner::One { limiter, grant: Grant::new(demand, applied.readings(), at) }
            }
            Demands::Several { first, mut demands } => {
                let demands = mem::take(&mut *demands);
                let readings = applied.into_readings();
                PermitInner::Several(AnsweredDemands { limiter, first, demands, readings, at })
            }
        })
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
        !self.limiter().is_off()
    }

    /// How the limit stood after the decision; of several limits, the first.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = match &self.0 {
            PermitInner::One { grant, .. } => grant.snapshot(),
            PermitInner::Several(answered) => answered.grants().first.snapshot(),
            PermitInner::Owned(grants) => grants.first.snapshot(),
        };
        snapshot.with_speech(self.limiter().speech())
    }

    /// How all limits stood after the decision, in the order in which they were named.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        let (one, several) = match &self.0 {
            PermitInner::One { grant, .. } => (Some(grant.snapshot()), Vec::new()),
            PermitInner::Several(answered) => (None, answered.grants().snapshots()),
            PermitInner::Owned(grants) => (None, grants.snapshots()),
        };
        let speech = self.limiter().speech();
        one.into_iter().chain(several).map(|snapshot| snapshot.with_speech(speech))
    }

    /// Whether it took a token of a limit that counts requests in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        match &self.0 {
            PermitInner::One { grant, .. } => grant.is_in_flight(),
            PermitInner::Several(answered) => answered.demands.iter().any(Demand::is_in_flight),
            PermitInner::Owned(grants) => grants.iter().any(Grant::is_in_flight),
        }
    }

    /// The instant from which the work may run: that of the decision, or of the reservation.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match &self.0 {
            PermitInner::One { grant, .. } => grant.at,
            PermitInner::Several(answered) => answered.at,
            PermitInner::Owned(grants) => grants.at,
        }
    }

    /// Makes a permit that borrows nothing, to be moved into a stream, a task or a struct.
    #[doc(alias("acquire_owned", "OwnedSemaphorePermit"))]
    #[must_use]
    pub fn into_owned(self) -> Permit<'static> {
        let own = |limit: &&Limit| Arc::new(Limit::clone(limit));
        Permit(PermitInner::Owned(match self.0 {
            PermitInner::Owned(grants) => grants,
            PermitInner::One { limiter, grant } => {
                let (limiter, at) = (limiter.clone(), grant.at);
                Arc::new(Grants { limiter, first: grant.to_owned_by(own), rest: Vec::new(), at })
            }
            PermitInner::Several(answered) => {
                let Grants { limiter, first, rest, at } = answered.grants();
                let rest = rest.iter().map(|grant| grant.to_owned_by(own)).collect();
                let (limiter, first) = (limiter.clone(), first.to_owned_by(own));
                Arc::new(Grants { limiter, first, rest, at })
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
        match &self.0 {
            PermitInner::One { limiter, grant } => {
                Settle::new(limiter, grant, iter::empty(), settlement)
            }
            PermitInner::Several(answered) => {
                let all = answered.grants();
                Settle::new(all.limiter, &all.first, all.rest.iter(), settlement)
            }
            PermitInner::Owned(all) => {
                Settle::new(&all.limiter, &all.first, all.rest.iter(), settlement)
            }
        }
    }
}

impl<'l> Permit<'l> {
    pub(crate) fn limiter(&self) -> &RateLimiter {
        match &self.0 {
            PermitInner::One { limiter, .. } => limiter,
            PermitInner::Several(answered) => answered.limiter,
            PermitInner::Owned(all) => &all.limiter,
        }
    }

    /// The first limit.
    pub(crate) fn limit(&self) -> &Limit {
        match &self.0 {
            PermitInner::One { grant, .. } => grant.limit(),
            PermitInner::Several(answered) => answered.first,
            PermitInner::Owned(all) => all.first.limit(),
        }
    }

    /// Resets all buckets of its limits for its keys, all shards of them.
    pub(crate) fn reset_buckets(&self) -> DetachOnDrop<()> {
        match &self.0 {
            PermitInner::One { limiter, grant } => reset(limiter, [grant]),
            PermitInner::Several(answered) => reset(answered.limiter, answered.grants().iter()),
            PermitInner::Owned(all) => reset(&all.limiter, all.iter()),
        }
    }
}

/// Resets all buckets of these limits for their keys.
fn reset<'g, L: Borrow<Limit> + 'g>(
    limiter: &RateLimiter,
    grants: impl IntoIterator<Item = &'g Grant<L>>,
) -> DetachOnDrop<()> {
    let ids: SmallVec<[BucketId<'_>; 4]> = grants.into_iter().flat_map(Grant::all_shards).collect();
    DetachOnDrop::new(limiter.forget(&ids))
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
