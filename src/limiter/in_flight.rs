//! Work in flight: a permit that is kept while the work runs.

use std::borrow::Borrow;
use std::sync::Arc;

use super::Limit;
use super::complete_answer::CompleteAnswer;
use super::demand::Demand;
use super::detached::{BoxedAnswer, DetachOnDrop};
use super::engine::RateLimiter;
use super::permit::{Permit, Settlement};
use crate::algebra::Verdict;
use crate::backend::{Answer, Applied, BackendError};

/// Keeps a [`Permit`] while its work runs; made by [`Permit::in_flight`].
///
/// Dropping it gives back the tokens of the limits that count requests [in
/// flight](crate::Quota::in_flight): at a `return` or a `?`, if the work panics, and if its future is
/// dropped. What other limits of the call took stays taken.
///
/// # Dropping
///
/// The store is asked at once. If it answers later, this completes in a task, on the tokio runtime in
/// which the guard is dropped. Outside of a runtime, the tokens are there again when they count as
/// [lost](crate::Quota::lost_after).
#[derive(Debug)]
#[must_use = "if it is dropped at once, the work is not counted while it runs"]
pub struct InFlight<'l>(Permit<'l>);

impl<'l> Permit<'l> {
    /// Keeps the permit until the guard is dropped, which gives back what counts work [in
    /// flight](crate::Quota::in_flight).
    ///
    /// A permit of such a limit that is dropped without a guard, and that is neither
    /// [settled](Self::settle) nor [refunded](Self::refund), keeps its token: in memory until the key
    /// is [reset](crate::RateLimiter::reset), elsewhere until it counts as lost.
    ///
    /// Call [`into_owned`](Self::into_owned) before, to move the guard into a task, a stream or a
    /// connection.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, Quota, RateLimited, RateLimiter};
    ///
    /// const REPORTS: Limit = Limit::new("reports", Quota::in_flight(2));
    ///
    /// async fn report(limiter: &RateLimiter, user: &str) -> Result<String, RateLimited> {
    ///     let _in_flight = limiter.limit(&REPORTS).key(user).await?.in_flight();
    ///     Ok(format!("what {user} has done")) // the long query
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// for _ in 0..10 {
    ///     report(&limiter, "alice").await?;
    /// }
    /// assert_eq!(limiter.peek(&REPORTS).key("alice").await?.remaining(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("guard", "release_on_drop"))]
    pub fn in_flight(self) -> InFlight<'l> {
        InFlight(self)
    }
}

impl<'l> InFlight<'l> {
    /// The permit.
    #[must_use]
    pub const fn permit(&self) -> &Permit<'l> {
        &self.0
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.0.is_in_flight() {
            // It completes by itself, also if its future is dropped.
            drop(self.0.settle_by(Settlement::Ended));
        }
    }
}

/// What a store has taken for work in flight, until the call has it. If the call is dropped before
/// the store answers, a task waits for the answer and drops this value, which gives the tokens back.
pub(super) struct InFlightAnswer {
    limiter: RateLimiter,
    demands: Vec<Demand<Arc<Limit>>>,
    /// `None` once the call has it.
    applied: Option<Applied>,
}

impl InFlightAnswer {
    pub(super) fn boxed<L: Borrow<Limit>>(
        limiter: &RateLimiter,
        demands: &[Demand<L>],
        answer: BoxedAnswer<Applied>,
    ) -> BoxedAnswer<Applied> {
        let owned = demands.iter().map(|one| one.with_limit(Arc::new(one.limit().clone())));
        let (limiter, demands) = (limiter.clone(), owned.collect());
        let answer = DetachOnDrop::new(Answer::pending(async move {
            // An error is an outage: what was taken then counts as lost.
            Ok(Self { applied: Some(answer.await?), limiter, demands })
        }));
        Box::pin(async move { answer.await?.applied.take().ok_or_else(BackendError::incomplete) })
    }
}

impl Drop for InFlightAnswer {
    fn drop(&mut self) {
        let Some(applied) = self.applied.take() else { return };
        let Ok(answer) = CompleteAnswer::new(&self.demands, applied) else { return };
        if answer.verdict() == Verdict::Admitted {
            let grants = answer.grants(std::mem::take(&mut self.demands).into_iter());
            let permit = Permit::of_grants(self.limiter.clone(), grants, answer.at());
            drop(permit.map(Permit::in_flight));
        }
    }
}
