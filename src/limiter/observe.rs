//! Handles with observers, and what they tell them about the store.

use std::sync::Arc;

use tokio::time::Instant;

use super::Limit;
use super::detached::BoxedAnswer;
use super::engine::RateLimiter;
use super::events::{Observer, Observers, StoreHealth};
use super::failure_log::Undecided;
use crate::algebra::Verdict;
use crate::backend::{Applied, BackendError};

impl RateLimiter {
    /// Adds an observer, which is told what this handle and its later clones decide.
    ///
    /// It comes beside the observers that the handle has: each of them is told. Other handles keep
    /// theirs, and all of them share the buckets. A limiter that is [switched off](Self::enabled)
    /// tells nothing.
    ///
    /// A handle without observers costs nothing: its decisions take the same instructions as if
    /// there were none. With an observer, a decision in memory takes a longer way; the guide on
    /// observing has the figures.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tollgate::limiter::Decision;
    /// use tollgate::{Limit, MINUTE, Observer, Quota, RateLimiter};
    ///
    /// const SEARCHES: Limit = Limit::new("searches", Quota::token_bucket(10, MINUTE));
    ///
    /// #[derive(Default)]
    /// struct Tokens(AtomicU64);
    ///
    /// impl Observer for Tokens {
    ///     fn on_decision(&self, decision: &Decision<'_>) {
    ///         self.0.fetch_add(decision.taken(), Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let (all, limiter) = (Arc::new(Tokens::default()), RateLimiter::in_memory());
    /// let observed = limiter.clone().observe(Arc::clone(&all));
    /// observed.limit(&SEARCHES).key("alice").cost(3).await?;
    /// limiter.limit(&SEARCHES).key("alice").await?; // the same bucket, and not observed
    /// assert_eq!(all.0.load(Ordering::Relaxed), 3);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("with_observer", "on_limit_reached", "metrics", "telemetry"))]
    #[must_use]
    pub fn observe(self, observer: impl Observer) -> Self {
        if self.is_off() {
            return self;
        }
        self.with_defaults(|defaults| {
            defaults.observers = Some(Observers::with(defaults.observers.as_ref(), observer));
        })
    }
}

/// For the rooms above.
impl RateLimiter {
    /// The observers of this handle, if it has any.
    #[inline]
    pub(crate) fn observers(&self) -> Option<&Arc<Observers>> {
        self.defaults().observers.as_ref()
    }

    /// The same answer, timed for the observers.
    pub(super) fn timed<T: Send + 'static>(&self, answer: BoxedAnswer<T>) -> BoxedAnswer<T> {
        let Some(observers) = self.observers().map(Arc::clone) else { return answer };
        let asked = Instant::now();
        Box::pin(async move {
            let answer = answer.await;
            let (took, error) = (asked.elapsed(), answer.as_ref().err());
            observers.tell(|one| one.on_store(&StoreHealth::Answer { took, error }));
            answer
        })
    }

    /// The store did not decide, or did not carry out a call. It is logged once for its cause.
    #[cold]
    pub(super) fn store_failed(&self, limit: &Limit, error: &BackendError, call: Undecided) {
        let failure = self.failures().record(limit, error, call);
        if let Some(observers) = self.observers() {
            observers.tell(|one| one.on_store(&failure));
        }
    }

    /// The store has answered, or a fallback in its place. Called once the answer is known to be
    /// [complete](super::complete_answer::CompleteAnswer::new): of any other, no request is admitted.
    #[inline]
    pub(super) fn store_answered(&self, limit: &Limit, applied: &Applied, is_shadow: bool) {
        match applied.outage() {
            Some(error) => self.fell_back(limit, error, applied.verdict(), is_shadow),
            // It has taken tokens, so it works. A refusal proves less: a store that is full, or a
            // replica, alternates between refusals and failures.
            None if self.failures().lasts() && applied.verdict() != Verdict::Refused => {
                self.note_charge(limit);
            }
            None => {}
        }
    }

    #[cold]
    fn fell_back(&self, limit: &Limit, error: &BackendError, verdict: Verdict, is_shadow: bool) {
        let call = match verdict {
            _ if is_shadow => Undecided::Shadow,
            Verdict::Refused => Undecided::RefusedByFallback,
            Verdict::Admitted | Verdict::Reserved => Undecided::AdmittedByFallback,
        };
        self.store_failed(limit, error, call);
    }

    #[cold]
    fn note_charge(&self, limit: &Limit) {
        if let Some(recovery) = self.failures().record_charge(limit)
            && let Some(observers) = self.observers()
        {
            observers.tell(|one| one.on_store(&recovery));
        }
    }
}
