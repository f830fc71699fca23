//! Settling: giving back what the work did not cost.

use std::borrow::Borrow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use super::Limit;
use super::detached::DetachOnDrop;
use super::engine::RateLimiter;
use super::grant::Grant;
use super::rate_limited::RateLimited;
use super::snapshot::{Level, Snapshot};
use crate::algebra::{Units, Verdict};
use crate::backend::{Adjustment, Applied, BackendError, Reading};

/// The future of [`Permit::settle`](super::Permit::settle): how the limit stands then; of several,
/// the first that is concerned.
///
/// It borrows nothing, so it can be spawned.
///
/// # Cancel safety
///
/// The store was asked when the future was made. Dropping it does not undo that.
#[derive(Debug)]
#[must_use = "whether it worked is known only when it is awaited"]
pub struct Settle {
    answer: DetachOnDrop<Applied>,
    limit: Limit,
    actual: u64,
    /// What stays taken of the buckets of that limit.
    kept: SmallVec<[Units; 2]>,
}

/// What is settled of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settlement {
    /// The limits with an explicit cost, or all if none has one, keep this many tokens.
    Actual(u64),
    /// All limits keep this many.
    All(u64),
    /// Everything goes back, but for what has been gained since in place of it.
    LateRefund,
}

impl Settle {
    /// Asks the store to settle these grants.
    pub(crate) fn new<'g, L: Borrow<Limit> + 'g>(
        limiter: &RateLimiter,
        first: &'g Grant<L>,
        rest: impl Iterator<Item = &'g Grant<L>> + Clone,
        settlement: Settlement,
    ) -> Self {
        let grants = std::iter::once(first).chain(rest);
        let (actual, late, by_cost) = match settlement {
            Settlement::Actual(actual) => (actual, false, true),
            Settlement::All(actual) => (actual, false, false),
            Settlement::LateRefund => (0, true, false),
        };
        // Where one limit has a cost, one that only counts requests is left alone.
        let by_cost = by_cost && grants.clone().any(Grant::has_explicit_cost);
        let (mut concerned, mut kept) = (None, SmallVec::new());
        let mut refunds = SmallVec::<[Adjustment<'_>; 4]>::new();
        for grant in grants.filter(|grant| grant.has_explicit_cost() || !by_cost) {
            let is_first = concerned.is_none();
            concerned.get_or_insert(grant.limit());
            for (refund, keeps) in grant.refunds(actual, late) {
                refunds.push(refund);
                if is_first {
                    kept.push(keeps);
                }
            }
        }
        let answer = DetachOnDrop::new(limiter.give_back(&mut refunds));
        Self { answer, limit: concerned.unwrap_or(first.limit()).clone(), actual, kept }
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
        Poll::Ready(snapshot.map_err(|error| RateLimited::unavailable(&self.limit, error)))
    }
}
