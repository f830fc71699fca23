//! Leave to run the work, and settling it afterwards.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Limit;
use super::demand::{Demand, Demands};
use super::detached::DetachOnDrop;
use super::engine::{RateLimiter, next_readings};
use super::grant::Grant;
use super::settle::{Settle, Settlement};
use super::snapshot::Snapshot;
use crate::backend::{Applied, BucketId, Reading};
use crate::clock::Timestamp;

/// Leave to run the work now; its tokens are taken.
///
/// It borrows the limiter and the limits, so that the request which only wants to run copies
/// nothing. Call [`into_owned`](Self::into_owned) before it goes into a stream, a task or a struct.
/// [`settle`](Self::settle) and [`refund`](Self::refund) borrow nothing and can be spawned as
/// they are. Dropping a permit gives nothing back: the work then cost what was taken.
///
/// The [module docs](super#a-streaming-handler) show a body that settles its permit on drop.
///
/// # Examples
///
/// Work whose cost is known when it is done pays an estimate, and is settled then:
///
/// ```
/// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};
///
/// const LLM_TOKENS: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
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

/// What a permit holds: grants, the limiter, the time.
enum PermitInner<'l> {
    One { limiter: &'l RateLimiter, grant: Grant<&'l Limit> },
    Several(AnsweredDemands<'l>),
    Owned(Box<Grants<RateLimiter, Arc<Limit>>>),
}

/// What several limits were asked, and what their buckets answered. Nearly all permits are only
/// dropped, so [grants](Self::grants) are made of it when they are asked for.
struct AnsweredDemands<'l> {
    limiter: &'l RateLimiter,
    first: &'l Limit,
    demands: Vec<Demand<&'l Limit>>,
    readings: Vec<Reading>,
    at: Timestamp,
}

impl<'l> AnsweredDemands<'l> {
    /// What each limit has granted.
    fn grants(&self) -> Grants<&'l RateLimiter, &'l Limit> {
        let &Self { limiter, first, ref demands, ref readings, at } = self;
        let mut rest = readings.as_slice();
        let mut grants = demands
            .iter()
            .map(|demand| Grant::new(demand.clone(), next_readings(demand, &mut rest), at));
        // There is a demand on the first limit.
        let first = grants.next().unwrap_or_else(|| Grant::new(Demand::new(first), &[], at));
        let rest = grants.collect();
        Grants { limiter, first, rest, at }
    }
}

/// The grants of a request, of which there is at least one.
struct Grants<R, L> {
    limiter: R,
    first: Grant<L>,
    rest: Vec<Grant<L>>,
    at: Timestamp,
}

impl<R, L: Borrow<Limit>> Grants<R, L> {
    fn iter(&self) -> impl Iterator<Item = &Grant<L>> + Clone {
        std::iter::once(&self.first).chain(&self.rest)
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        self.iter().map(Grant::snapshot).collect()
    }
}

impl<'l> Permit<'l> {
    /// Leave by the only limit that was asked, which took from one bucket.
    #[inline(always)]
    pub(super) const fn from_grant(limiter: &'l RateLimiter, grant: Grant<&'l Limit>) -> Self {
        Self(PermitInner::One { limiter, grant })
    }

    /// Leave by a complete answer that admits these demands.
    #[inline(always)]
    pub(super) fn new(limiter: &'l RateLimiter, demands: Demands<'l>, applied: Applied) -> Self {
        let at = applied.now();
        Self(match demands {
            Demands::One([demand]) => {
                PermitInner::One { limiter, grant: Grant::new(demand, applied.readings(), at) }
            }
            Demands::Several { first, demands } => {
                let readings = applied.into_readings();
                PermitInner::Several(AnsweredDemands { limiter, first, demands, readings, at })
            }
        })
    }

    /// The whole tokens that are left; of several limits, the least that any has.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.snapshots().map(|snapshot| snapshot.remaining()).min().unwrap_or(0)
    }

    /// How the limit stood after this was decided; of several, the first.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        match &self.0 {
            PermitInner::One { grant, .. } => grant.snapshot(),
            PermitInner::Several(answered) => answered.grants().first.snapshot(),
            PermitInner::Owned(grants) => grants.first.snapshot(),
        }
    }

    /// How all limits stood after this was decided, in the order in which they were named.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        let (one, several) = match &self.0 {
            PermitInner::One { grant, .. } => (Some(grant.snapshot()), Vec::new()),
            PermitInner::Several(answered) => (None, answered.grants().snapshots()),
            PermitInner::Owned(grants) => (None, grants.snapshots()),
        };
        one.into_iter().chain(several)
    }

    /// The instant from which the work may run: that of the decision, or of the reservation.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match &self.0 {
            PermitInner::One { grant, .. } => grant.at(),
            PermitInner::Several(answered) => answered.at,
            PermitInner::Owned(grants) => grants.at,
        }
    }

    /// This permit on its own, to be moved to where the limiter and the limits are not: into a
    /// stream, a task, a struct.
    #[must_use]
    pub fn into_owned(self) -> Permit<'static> {
        let own = |limit: &&Limit| Arc::new(Limit::clone(limit));
        Permit(PermitInner::Owned(match self.0 {
            PermitInner::Owned(grants) => grants,
            PermitInner::One { limiter, grant } => {
                let (limiter, at) = (limiter.clone(), grant.at());
                Box::new(Grants { limiter, first: grant.to_owned_by(own), rest: Vec::new(), at })
            }
            PermitInner::Several(answered) => {
                let Grants { limiter, first, rest, at } = answered.grants();
                let rest = rest.iter().map(|grant| grant.to_owned_by(own)).collect();
                let (limiter, first) = (limiter.clone(), first.to_owned_by(own));
                Box::new(Grants { limiter, first, rest, at })
            }
        }))
    }

    /// Says what the work really cost: what is left of its tokens is given back, as far as it fits
    /// in, and what is short is taken, into debt if need be.
    ///
    /// With several limits, only those with an explicit `cost` are settled; if none has one, all
    /// are. So a limit on requests keeps its one token, whatever the tokens of a model come to. A
    /// limit in shards gets its tokens back where they were taken.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the store could not do it.
    ///
    /// # Cancel safety
    ///
    /// The store is asked before this returns, and completes the settlement if the future is
    /// dropped. One that answers later needs a tokio runtime for that, the one in which the future
    /// is dropped.
    #[doc(alias = "adjust")]
    pub fn settle(self, actual: u64) -> Settle {
        self.settle_by(Settlement::Actual(actual))
    }

    /// Gives all tokens back to all limits: the work has not run, or is to cost nothing.
    ///
    /// A bucket that was [reset](RateLimiter::reset) since has forgiven them, and gets nothing
    /// back.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    #[doc(alias = "release")]
    pub fn refund(self) -> Settle {
        self.settle_by(Settlement::All(0))
    }

    pub(crate) fn settle_by(&self, settlement: Settlement) -> Settle {
        match &self.0 {
            PermitInner::One { limiter, grant } => {
                Settle::new(limiter, grant, std::iter::empty(), settlement)
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
    /// The first limit.
    pub(crate) fn limit(&self) -> &Limit {
        match &self.0 {
            PermitInner::One { grant, .. } => grant.limit(),
            PermitInner::Several(answered) => answered.first,
            PermitInner::Owned(all) => all.first.limit(),
        }
    }

    /// Makes all buckets of its limits for its keys as if they had never been used, all shards of
    /// them.
    pub(crate) fn reset_buckets(&self) -> DetachOnDrop<()> {
        match &self.0 {
            PermitInner::One { limiter, grant } => reset(limiter, [grant]),
            PermitInner::Several(answered) => reset(answered.limiter, answered.grants().iter()),
            PermitInner::Owned(all) => reset(&all.limiter, all.iter()),
        }
    }
}

/// Makes all buckets of these limits for their keys as if they had never been used.
fn reset<'g, L: Borrow<Limit> + 'g>(
    limiter: &RateLimiter,
    grants: impl IntoIterator<Item = &'g Grant<L>>,
) -> DetachOnDrop<()> {
    let ids: SmallVec<[BucketId<'_>; 4]> = grants.into_iter().flat_map(Grant::all_shards).collect();
    DetachOnDrop::new(limiter.forget(&ids))
}

impl Permit<'static> {
    /// Leave by grants that are owned already, from `at` on.
    pub(crate) fn from_grants(
        limiter: RateLimiter,
        first: Grant,
        rest: Vec<Grant>,
        at: Timestamp,
    ) -> Self {
        Self(PermitInner::Owned(Box::new(Grants { limiter, first, rest, at })))
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshots: Vec<_> = self.snapshots().collect();
        f.debug_struct("Permit").field("snapshots", &snapshots).field("at", &self.at()).finish()
    }
}
