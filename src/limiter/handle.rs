//! Handles: their defaults, their observers, the numbers in force, and what becomes of calls that the
//! store has not decided.

use std::borrow::Borrow;

use tokio::time::Instant;

use super::Limit;
use super::complete_answer::CompleteAnswer;
use super::demand::{Demand, Mode};
use super::detached::BoxedAnswer;
use super::engine::RateLimiter;
use super::events::{Observer, Observers, StoreHealth};
use super::failure_log::Undecided;
use super::limit::{LimitError, LimitProblem};
use super::off::Off;
use super::permit::Grants;
use super::rate_limited::RateLimited;
use super::replacements::MAX_VERSIONS;
use super::snapshot::Snapshot;
use crate::algebra::Verdict;
use crate::backend::{Applied, BackendError, OnFailure};
use crate::quota::Quota;

/// Defaults for the calls and the layers of a limiter.
///
/// Each method takes the limiter by value and concerns this handle and its later clones. Other
/// handles keep their defaults, and all of them share the buckets.
impl RateLimiter {
    /// Sets what happens while the store fails; requests are not admitted if not set.
    ///
    /// With [`OnFailure::Admit`], a call during an outage answers a [`Permit`](super::Permit) that
    /// took nothing: its [`is_decided`](super::Permit::is_decided) is false. The same holds for a
    /// [reservation](super::Reservation), whose work may run at once. Layers take this over unless
    /// they have an `on_failure` of their own. A call that looks or gives back fails as before.
    ///
    /// A [limit](Limit::on_failure) may say otherwise for itself.
    ///
    /// Either way, the failure is logged once until the store has recovered, and so is the recovery,
    /// with how many decisions admitted and refused meanwhile.
    /// [`passed_uncounted`](Self::passed_uncounted) counts what passed in the life of the limiter.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, OnFailure, Quota, RateLimited, RateLimiter};
    ///
    /// const SEARCHES: Limit = Limit::new("searches", Quota::token_bucket(100, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory().on_failure(OnFailure::Admit);
    /// let permit = limiter.limit(&SEARCHES).key("alice").await?;
    /// assert!(permit.is_decided()); // the memory store does not fail
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("fail_open", "fail_closed", "skip_failing"))]
    #[must_use]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.with_defaults(|defaults| defaults.on_failure = on_failure)
    }

    /// Switches the limiter off if `enabled` is false: nothing is limited, counted or stored.
    ///
    /// A service can so read from its configuration whether it limits, and a test can do without
    /// limits. Calls answer a [`Permit`](super::Permit) at once, for any cost; it says by
    /// [`is_decided`](super::Permit::is_decided) that nothing was taken. Reservations are for now.
    /// Layers let all requests through, and add no header fields. A
    /// [`peek`](RateLimiter::peek) shows a full limit, and resets, penalties and settlements do
    /// nothing. The store is not asked.
    ///
    /// `enabled(true)` changes nothing: a handle that was switched off stays off.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
    ///
    /// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(1, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let is_production = false; // from the configuration
    /// let limiter = RateLimiter::in_memory().enabled(is_production);
    /// for _ in 0..100 {
    ///     let permit = limiter.limit(&LOGIN).key("alice").await?;
    ///     assert!(!permit.is_decided());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("disable", "skip", "bypass"))]
    #[must_use]
    pub fn enabled(self, enabled: bool) -> Self {
        if enabled { self } else { self.switched_off() }
    }

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
        if self.state.is_off {
            return self;
        }
        self.with_defaults(|defaults| {
            defaults.observers = Some(Observers::with(defaults.observers.as_ref(), observer));
        })
    }
}

impl RateLimiter {
    /// How many requests have passed uncounted because the store failed, in calls and layers of this
    /// limiter and its clones.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    ///
    /// assert_eq!(RateLimiter::in_memory().passed_uncounted(), 0);
    /// ```
    #[must_use]
    pub fn passed_uncounted(&self) -> u64 {
        self.state.failures.uncounted()
    }

    /// Gives a limit other numbers from now on, in all calls and layers of this limiter and its
    /// clones.
    ///
    /// What each key has *used* stays used, as [`rescale`](crate::algebra::rescale) says: a client
    /// that has used 3 of 3 tokens has 97 left when the limit becomes 100. Numbers that refill more
    /// slowly take over with the first request that they admit; until then, what was used comes
    /// back by the numbers of before. So one that has used 5,000 of 10,000 a day and then has 100 a
    /// day waits for 11.8 hours, and not for the 49 days in which 100 a day repay the rest. A queue
    /// of slower numbers takes a request once what is used fits in their capacity. No key gets a
    /// refill by it, however often the numbers change. For that, [reset](Self::reset) the keys.
    /// Nothing waits for it: calls that have begun end with the numbers of before, requests in a
    /// queue run at the instant that they were told, or earlier. A request that was admitted before
    /// goes on by the numbers of before, also where its handler takes more (`Admission::charge`),
    /// however long it runs.
    ///
    /// `limit` is named by its name and by the numbers that *it* has, which are those before the
    /// first replacement: `replace(&LOGIN, ..)` twice replaces the same limit twice. Limits of the
    /// same name with other numbers, such as the plans of a service, keep theirs. Its own numbers
    /// as `quota` undo all replacements.
    ///
    /// The new numbers are in force when this function returns. They are kept in this process: on a
    /// store that other processes share, each of them replaces the numbers for itself, at its own
    /// time.
    ///
    /// While numbers change, or differ between processes, a key gets at most what the larger of the
    /// two quotas allows, if both have the same kind, period and start. If not, each change may add
    /// one step of gain: a window of one quota may open just before, and a window of the other one
    /// just after. Another number of [shards](Quota::shards) forgets some of what was used, as the
    /// buckets are others.
    ///
    /// What was reserved before the change is an exception. In a store that other processes share,
    /// its requests run at the instants that they were told, and that much may run on top. In
    /// memory, they move forward instead. There, a request that costs more than the smaller
    /// capacity may let as much run on top as it exceeds that.
    ///
    /// With [`Quota::none`], the limit grants nothing until it has other numbers again. Numbers by
    /// which each request of a layer costs more than the limit can grant, or any request of a call,
    /// are logged as a warning.
    ///
    /// Returns the numbers that were in force before.
    ///
    /// # Errors
    ///
    /// If the quota contradicts itself or does not fit, or counts requests [in
    /// flight](Quota::in_flight) where the limit counts a rate, or the reverse. Then the numbers stay as
    /// they are. So they do if this limiter has had 65,536 different quotas already: it keeps each of them, some 300
    /// bytes, for as long as it lives, as calls borrow them. Numbers that it has had before count
    /// once, so a controller that computes rates should round them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(3, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::in_memory();
    /// limiter.limit(&EXPORTS).key("alice").cost(3).await?;
    /// assert!(limiter.limit(&EXPORTS).key("alice").await.is_err());
    ///
    /// let before = limiter.replace(&EXPORTS, "100 per hour".parse()?)?;
    /// assert_eq!(before, Quota::token_bucket(3, HOUR));
    /// let permit = limiter.limit(&EXPORTS).key("alice").await?;
    /// assert_eq!(permit.remaining(), 96); // 3 of 100 were used, and this is the fourth
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("reload", "update", "set_quota", "replace_configuration", "hot_reload"))]
    pub fn replace(&self, limit: &Limit, quota: Quota) -> Result<Quota, LimitError> {
        let failed = |cause| LimitError::replace(limit, quota, cause);
        if !quota.is_none()
            && !limit.quota().is_none()
            && quota.is_in_flight() != limit.quota().is_in_flight()
        {
            return Err(failed(LimitProblem::CountsOther));
        }
        let new = limit.with_quota(quota).map_err(|error| failed(LimitProblem::Quota(error)))?;
        match self.state.replacements.replace(limit, new) {
            Some(before) => {
                self.state.uses.check_numbers(limit, self.state.replacements.current(limit));
                Ok(*before.quota())
            }
            None => Err(failed(LimitProblem::TooManyVersions(MAX_VERSIONS))),
        }
    }

    /// The numbers of a limit that are in force: its own, or those that
    /// [`replace`](Self::replace) gave it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
    ///
    /// let limiter = RateLimiter::in_memory();
    /// limiter.replace(&LOGIN, Quota::token_bucket(10, HOUR))?;
    /// assert_eq!(limiter.quota(&LOGIN).to_string(), "10 per hour");
    /// assert_eq!(LOGIN.quota().to_string(), "5 per hour");
    /// # Ok::<(), tollgate::limiter::LimitError>(())
    /// ```
    #[must_use]
    pub fn quota(&self, limit: &Limit) -> Quota {
        *self.state.replacements.current(limit).quota()
    }
}

/// For the rooms above.
impl RateLimiter {
    /// The error of a call that the store did not decide.
    #[cold]
    pub(crate) fn unavailable(&self, limit: &Limit, error: BackendError) -> RateLimited {
        RateLimited::unavailable(limit, error).with_speech(&self.state.speech)
    }

    /// The error of a call that decides about no request, and was not answered.
    #[cold]
    pub(super) fn call_failed(&self, limit: &Limit, error: BackendError) -> RateLimited {
        self.store_failed(limit, &error, Undecided::Call);
        self.unavailable(limit, error)
    }

    /// The result of a call that decides about no request.
    pub(super) fn finish_call(
        &self,
        limit: &Limit,
        snapshot: Result<Snapshot, BackendError>,
    ) -> Result<Snapshot, RateLimited> {
        match snapshot {
            Ok(snapshot) => Ok(snapshot.with_speech(&self.state.speech)),
            Err(error) => Err(self.call_failed(limit, error)),
        }
    }

    /// What these demands are granted without a charge: all limits are full, and nothing is stored. It
    /// is settled by a limiter that is switched off.
    ///
    /// # Errors
    ///
    /// None, as there are demands.
    #[cold]
    pub(super) fn grant_uncharged<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        limit: &Limit,
    ) -> Result<Grants, RateLimited> {
        let off = self.switched_off();
        let free = |demand: &Demand<L>| {
            let mut free = demand.own();
            free.set_cost(0);
            free.draw_shards(&off.state.random);
            free
        };
        let owned: Vec<_> = demands.iter().map(free).collect();
        // Without a look whether the cost fits: nothing does where a quota grants nothing.
        let charges: Vec<_> = owned.iter().map(|demand| demand.charge_of(0, Mode::Take)).collect();
        let answer = CompleteAnswer::of_memory(Off::default().answer(&charges));
        let grants = Grants::new(off, answer.grants(owned.into_iter()), answer.now());
        grants.ok_or_else(|| self.unavailable(limit, BackendError::incomplete()))
    }

    /// A limit with the numbers by which its buckets count: those in force, or its own while it is to
    /// grant nothing.
    pub(super) fn counting<'l>(&'l self, limit: &'l Limit) -> &'l Limit {
        let current = self.state.replacements.current(limit);
        if current.quota().is_none() { limit } else { current }
    }

    /// The same answer, timed for the observers.
    pub(super) fn timed<T: Send + 'static>(&self, answer: BoxedAnswer<T>) -> BoxedAnswer<T> {
        let Some(observers) = self.state.observers.clone() else { return answer };
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
        let failure = self.state.failures.record(limit, error, call);
        if let Some(observers) = &self.state.observers {
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
            None if self.state.failures.lasts() && applied.verdict() != Verdict::Refused => {
                self.note_charge(limit);
            }
            None => {}
        }
    }

    #[cold]
    fn fell_back(&self, limit: &Limit, error: &BackendError, verdict: Verdict, is_shadow: bool) {
        let call = match verdict {
            _ if is_shadow => Undecided::Shadow,
            Verdict::Refused => Undecided::Fallback(OnFailure::Refuse),
            Verdict::Admitted | Verdict::Reserved => Undecided::Fallback(OnFailure::Admit),
        };
        self.store_failed(limit, error, call);
    }

    #[cold]
    fn note_charge(&self, limit: &Limit) {
        if let Some(recovery) = self.state.failures.record_charge(limit)
            && let Some(observers) = &self.state.observers
        {
            observers.tell(|one| one.on_store(&recovery));
        }
    }
}
