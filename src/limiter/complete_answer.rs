//! The answer of a store to the demands of a request.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use super::Limit;
use super::demand::Demand;
use super::grant::Grant;
use super::rate_limited::RateLimited;
use super::snapshot::{Level, Snapshot};
use crate::backend::{Applied, BackendError, Reading};

/// A complete answer to some demands: each of their buckets has a reading.
///
/// It must be read with the demands that it was made with.
#[derive(Clone, Debug)]
pub(crate) struct CompleteAnswer(Applied);

impl Deref for CompleteAnswer {
    type Target = Applied;

    #[inline]
    fn deref(&self) -> &Applied {
        &self.0
    }
}

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

    /// The answer of the memory store, or of one that is switched off: they leave no bucket out.
    #[inline]
    pub(crate) const fn of_memory(applied: Applied) -> Self {
        Self(applied)
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

    /// Each demand with the readings of its buckets: one, or two for a limit in shards.
    pub(crate) fn each<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = (&'x Demand<L>, &'x [Reading])> + Clone {
        let mut rest = self.readings();
        demands.iter().map(move |demand| (demand, next_readings(demand, &mut rest)))
    }

    /// How the limit stands, if there is only one demand.
    #[inline]
    pub(crate) fn level<L: Borrow<Limit>>(&self, demand: &Demand<L>) -> Level {
        Level::new(demand.limit(), self.readings(), demand.cost, self.now())
    }

    /// How the limit of each demand stands.
    pub(crate) fn levels<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = (&'x Demand<L>, Level)> + Clone {
        self.each(demands).map(|(demand, readings)| {
            (demand, Level::new(demand.limit(), readings, demand.cost, self.now()))
        })
    }

    /// What each demand was granted.
    pub(crate) fn grants<'x, L: Borrow<Limit>>(
        &'x self,
        demands: impl Iterator<Item = Demand<L>> + 'x,
    ) -> impl Iterator<Item = Grant<L>> + 'x {
        let mut rest = self.readings();
        demands.map(move |demand| {
            let readings = next_readings(&demand, &mut rest);
            Grant::new(demand, readings, self.now())
        })
    }

    /// The refusal, with the limits that refused.
    pub(crate) fn refusal<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        jitter: Duration,
    ) -> Option<RateLimited> {
        let retry_after = self.retry_after(demands, jitter);
        match demands {
            // Most refusals: their error is written in place.
            [demand] if !self.has_kept() => {
                Some(RateLimited::refused(demand.limit(), self.level(demand), retry_after))
            }
            _ => RateLimited::refused_by(self.refused(demands), retry_after),
        }
    }

    /// How each limit stands that says what the answer as a whole says, and has so refused.
    pub(crate) fn refused<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = Snapshot> {
        let mut next = 0_usize;
        self.levels(demands).filter_map(move |(demand, level)| {
            let (place, count) = (next, demand.bucket_count());
            next = next.saturating_add(count);
            (level.verdict == self.verdict()).then(|| {
                let mut snapshot = Snapshot::new(demand.limit(), level);
                snapshot.set_kept(self.kept(place).filter(|_| count == 1));
                snapshot
            })
        })
    }
}

/// Splits off the readings of this demand from those of all that follow.
fn next_readings<'x, L: Borrow<Limit>>(
    demand: &Demand<L>,
    rest: &mut &'x [Reading],
) -> &'x [Reading] {
    let (readings, others) = rest.split_at_checked(demand.bucket_count()).unwrap_or((*rest, &[]));
    *rest = others;
    readings
}
