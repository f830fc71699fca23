//! Handles with other defaults, and what these do for calls.

use std::borrow::Borrow;

use super::Limit;
use super::complete_answer::CompleteAnswer;
use super::defaults::Speech;
use super::demand::{Demand, Mode};
use super::engine::RateLimiter;
use super::failure_log::Undecided;
use super::permit::Grants;
use super::rate_limited::RateLimited;
use super::snapshot::Snapshot;
use crate::backend::{Answer, BackendError, OnFailure};

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
        self.failures().uncounted()
    }
}

/// For the rooms above.
impl RateLimiter {
    pub(crate) fn get_on_failure(&self) -> OnFailure {
        self.defaults().on_failure
    }

    /// Whether a request of these limits passes in spite of this error: it is an outage, and no limit
    /// refuses. A limit that says nothing goes by `unless_said`.
    pub(crate) fn passes<'l>(
        error: &BackendError,
        mut limits: impl Iterator<Item = &'l Limit>,
        unless_said: OnFailure,
    ) -> bool {
        let admits = |limit: &Limit| limit.get_on_failure().unwrap_or(unless_said);
        error.is_outage() && limits.all(|limit| admits(limit) == OnFailure::Admit)
    }

    pub(crate) fn with_speech(&self, speech: Speech) -> Self {
        self.with_defaults(|defaults| defaults.speech = speech)
    }
}

impl RateLimiter {
    pub(crate) fn speech(&self) -> &Speech {
        &self.defaults().speech
    }

    /// The error of a call that the store did not decide.
    #[cold]
    pub(crate) fn unavailable(&self, limit: &Limit, error: BackendError) -> RateLimited {
        RateLimited::unavailable(limit, error).with_speech(self.speech())
    }

    /// Fails if the buckets of this limit cannot be counted, as it grants nothing.
    pub(super) fn check_countable(&self, limit: &Limit) -> Result<(), RateLimited> {
        match limit.quota().is_none() && !self.is_off() {
            true => Err(RateLimited::refused_for_good(limit, 0).with_speech(self.speech())),
            false => Ok(()),
        }
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
            Ok(snapshot) => Ok(snapshot.with_speech(self.speech())),
            Err(error) => Err(self.call_failed(limit, error)),
        }
    }

    /// What these demands are granted without a charge: all limits are full, and nothing is stored. It
    /// is settled by a limiter that is switched off.
    ///
    /// # Errors
    ///
    /// None: the store that keeps nothing answers at once.
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
            free.draw_shards(off.random());
            free
        };
        let owned: Vec<_> = demands.iter().map(free).collect();
        // Without a look whether the cost fits: nothing does where a quota grants nothing.
        let charges: Vec<_> = owned.iter().map(|demand| demand.charge_of(0, Mode::Take)).collect();
        let Answer::Ready(answer) = off.backend().apply(&charges) else {
            return Err(self.unavailable(limit, BackendError::incomplete()));
        };
        drop(charges);
        let unavailable = |error| self.unavailable(limit, error);
        let answer = answer.and_then(|applied| CompleteAnswer::new(&owned, applied));
        let answer = answer.map_err(unavailable)?;
        let grants = Grants::new(off, answer.grants(owned.into_iter()), answer.at());
        grants.ok_or_else(|| unavailable(BackendError::incomplete()))
    }
}
