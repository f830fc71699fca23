//! Settling: corrects what was taken to what the work really cost.

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

/// The future of [`Permit::settle`](super::Permit::settle) and [`refund`](super::Permit::refund).
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
        let grants = std::iter::once(first).chain(rest);
        let (actual, late, by_cost) = match settlement {
            Settlement::Actual(actual) => (actual, false, true),
            Settlement::All(actual) => (actual, false, false),
            Settlement::LateRefund | Settlement::Ended => (0, true, false),
        };
        let has_ended = matches!(settlement, Settlement::Ended);
        // If one limit has an explicit cost, limits that only count requests keep their tokens.
        let by_cost = by_cost
            && grants.clone().any(|grant| grant.has_explicit_cost() && !grant.is_in_flight());
        let (mut concerned, mut kept) = (None, SmallVec::new());
        let mut refunds = SmallVec::<[Adjustment<'_>; 4]>::new();
        // Whatever the work has cost, it is no longer in flight. Its tokens may have been lost before,
        // and then are not returned again.
        let is_settled = |grant: &&Grant<L>| {
            grant.is_in_flight() || (!has_ended && (grant.has_explicit_cost() || !by_cost))
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
