//! The answer of a store to the demands of a request.

use std::borrow::Borrow;
use std::time::Duration;

use super::Limit;
use super::demand::Demand;
use super::grant::Grant;
use super::rate_limited::RateLimited;
use super::snapshot::Level;
use crate::algebra::Verdict;
use crate::backend::{Applied, BackendError, BucketRecord, Reading};
use crate::clock::Timestamp;

/// A complete answer to some demands: each of their buckets has a reading.
///
/// It must be read with the demands that it was made with.
#[derive(Clone, Debug)]
pub(crate) struct CompleteAnswer(Applied);

impl CompleteAnswer {
    /// Checks that an answer of a store is complete.
    ///
    /// # Errors
    ///
    /// If the store has left out a bucket, or answered about others.
    #[inline]
    pub(crate) fn new<L: Borrow<Limit>>(
        demands: &[Demand<L>],
        applied: Applied,
    ) -> Result<Self, BackendError> {
        let buckets = demands.iter().map(Demand::bucket_count).sum::<usize>();
        if buckets == 0 || applied.readings().len() != buckets {
            return Err(BackendError::incomplete());
        }
        Ok(Self(applied))
    }

    /// The answer of the memory store, which leaves no bucket out.
    #[inline]
    pub(crate) const fn of_memory(applied: Applied) -> Self {
        Self(applied)
    }

    #[inline]
    pub(crate) fn verdict(&self) -> Verdict {
        self.0.verdict()
    }

    pub(super) fn into_applied(self) -> Applied {
        self.0
    }

    pub(crate) const fn applied(&self) -> &Applied {
        &self.0
    }

    /// The wait until every bucket has the tokens.
    #[inline]
    pub(crate) fn wait(&self) -> Duration {
        self.0.wait()
    }

    /// After which time the request may be repeated, with `jitter`; `None` if nobody knows, since only
    /// requests in flight are in its way.
    pub(crate) fn retry_after<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        jitter: Duration,
    ) -> Option<Duration> {
        if !demands.iter().any(Demand::is_in_flight) {
            return Some(self.wait().saturating_add(jitter));
        }
        // The other limits: before that, no request in flight helps.
        let known = self.levels(demands).filter_map(|(_, level)| level.wait).max();
        known.filter(|wait| !wait.is_zero()).map(|wait| wait.saturating_add(jitter))
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.0.now()
    }

    /// Each demand with the readings of its buckets: one, or two for a limit in shards.
    pub(crate) fn each<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = (&'x Demand<L>, &'x [Reading])> + Clone {
        let mut rest = self.0.readings();
        demands.iter().map(move |demand| (demand, next_readings(demand, &mut rest)))
    }

    /// How the limit stands, if there is only one demand.
    #[inline]
    pub(crate) fn level<L: Borrow<Limit>>(&self, demand: &Demand<L>) -> Level {
        Level::new(demand.limit(), self.0.readings(), demand.cost, self.at())
    }

    /// How the limit of each demand stands.
    pub(crate) fn levels<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = (&'x Demand<L>, Level)> + Clone {
        self.each(demands).map(|(demand, readings)| {
            (demand, Level::new(demand.limit(), readings, demand.cost, self.at()))
        })
    }

    /// What each demand was granted.
    pub(crate) fn grants<'x, L: Borrow<Limit>>(
        &'x self,
        demands: impl Iterator<Item = Demand<L>> + 'x,
    ) -> impl Iterator<Item = Grant<L>> + 'x {
        let mut rest = self.0.readings();
        demands.map(move |demand| {
            let readings = next_readings(&demand, &mut rest);
            Grant::new(demand, readings, self.at())
        })
    }

    /// The refusal, with the limits that refused.
    pub(crate) fn refusal<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        jitter: Duration,
    ) -> Option<RateLimited> {
        let verdict = self.verdict();
        let refused = self.levels(demands).filter(|(_, level)| level.verdict == verdict);
        let mut refused = refused.map(|(demand, level)| (demand.limit(), level));
        let (first, retry_after) = (refused.next()?, self.retry_after(demands, jitter));
        let error = RateLimited::refused_by_several(first, refused, retry_after);
        Some(if self.0.has_kept() { error.with_kept(self.kept_by_refused(demands)) } else { error })
    }

    /// For each demand that was refused, the record of its bucket, if that keeps its numbers.
    pub(crate) fn kept_by_refused<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = Option<&'x BucketRecord>> {
        let mut nth = 0_usize;
        let records = self.levels(demands).map(move |(demand, level)| {
            let record = self.0.kept(nth).filter(|_| demand.bucket_count() == 1);
            nth = nth.saturating_add(demand.bucket_count());
            (record, level.verdict)
        });
        records.filter(|(_, verdict)| *verdict == Verdict::Refused).map(|(record, _)| record)
    }
}

/// Splits off the readings of this demand from those of all that follow.
pub(super) fn next_readings<'x, L: Borrow<Limit>>(
    demand: &Demand<L>,
    rest: &mut &'x [Reading],
) -> &'x [Reading] {
    let (readings, others) = rest.split_at_checked(demand.bucket_count()).unwrap_or((*rest, &[]));
    *rest = others;
    readings
}
