//! The quota that grants nothing.

use std::time::Duration;

use super::{Calendar, Counted, DAY, Kind, Quota, QuotaError};

impl Quota {
    /// Grants nothing: every request is refused, whatever it costs, and no wait helps.
    ///
    /// It is the quota of a plan that is paused, or of a client that is shut out. A request that meets
    /// it is refused as a whole, without asking the store: no bucket is read or changed. When a key is
    /// back on other numbers, it has what it would have had without a request in between.
    ///
    /// * The answer is a [refusal](crate::RateLimited::is_refused) with status 429, to reservations as
    ///   well. Its [`retry_after`](crate::RateLimited::retry_after) is `None`, and it has no header
    ///   fields about the limit: there is no time to come back.
    /// * A [`peek`](crate::RateLimiter::peek) shows a capacity of 0, and nothing left.
    /// * What was granted before is settled as always, and a [reset](crate::RateLimiter::reset) finds
    ///   the buckets. While [`replace`](crate::RateLimiter::replace) has put this quota in the place
    ///   of another one, penalties, blocks and lists of debtors count by the numbers that the limit
    ///   was made with. A limit that is *made* with it has no numbers to count by, so these calls
    ///   are refused.
    ///
    /// As text it is `0 per day`, and any period will do.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{DAY, Limit, Quota, RateLimiter};
    ///
    /// const PAID: Limit = Limit::new("per-tenant", Quota::token_bucket(100, DAY));
    /// const PAUSED: Limit = Limit::new("per-tenant", Quota::none());
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::in_memory();
    /// limiter.limit(&PAID).key("acme").cost(40).await?;
    ///
    /// let refused = limiter.limit(&PAUSED).key("acme").await.unwrap_err();
    /// assert!(refused.is_refused() && refused.retry_after().is_none());
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "refused by limit `per-tenant` (it grants nothing: 0 per day)"
    /// );
    ///
    /// assert_eq!(limiter.peek(&PAID).key("acme").await?.remaining(), 60);
    /// assert_eq!("0 per hour".parse::<Quota>()?, Quota::none());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "pause")]
    #[doc(alias = "suspend")]
    #[doc(alias = "deny")]
    #[doc(alias = "zero")]
    #[must_use]
    pub const fn none() -> Self {
        Self {
            kind: Kind::TokenBucket,
            rate: 0,
            period: DAY,
            capacity: None,
            max_reserved: None,
            initial: None,
            start: None,
            calendar: None,
            counted: Counted::Rate,
            shards: 1,
        }
    }

    /// Whether it grants nothing, as [`none`](Self::none) does.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.rate == 0
    }

    /// The numbers of a text or a file, in which a rate of zero is [`none`](Self::none).
    ///
    /// # Errors
    ///
    /// If the numbers contradict each other or do not fit.
    #[doc(hidden)]
    pub const fn read(kind: Kind, rate: u64, period: Duration) -> Result<Self, QuotaError> {
        match rate {
            0 if !period.is_zero() => Ok(Self::none()),
            _ => Self::check(kind, rate, period),
        }
    }

    /// The same for the windows of a calendar.
    ///
    /// # Errors
    ///
    /// If the numbers contradict each other or do not fit.
    #[doc(hidden)]
    pub const fn read_calendar(rate: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        match rate {
            0 => Ok(Self::none()),
            _ => Self::of_calendar(rate, calendar),
        }
    }
}
