//! Changing the numbers of limits while they are used.

use super::Limit;
use super::engine::RateLimiter;
use super::limit::{LimitError, ReplaceCause};
use super::replacements::MAX_VERSIONS;
use crate::quota::Quota;

/// Numbers that change while a service runs.
impl RateLimiter {
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
    /// just after.
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
            return Err(failed(ReplaceCause::CountsOther));
        }
        let new = limit.with_quota(quota).map_err(|error| failed(ReplaceCause::Quota(error)))?;
        match self.replacements().replace(limit, new) {
            Some(before) => {
                self.uses().check_numbers(limit, self.replacements().current(limit));
                Ok(*before.quota())
            }
            None => Err(failed(ReplaceCause::TooManyVersions(MAX_VERSIONS))),
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
        *self.replacements().current(limit).quota()
    }

    /// A limit with the numbers by which its buckets count: those in force, or its own while it is to
    /// grant nothing.
    pub(super) fn counting<'l>(&'l self, limit: &'l Limit) -> &'l Limit {
        let current = self.replacements().current(limit);
        if current.quota().is_none() { limit } else { current }
    }
}
