//! The quota of requests that run at the same time.

use std::time::Duration;

use super::counted::Counted;
use super::error::QuotaProblem;
use super::units::MAX_UNITS;
use super::{Kind, Quota, QuotaError, WindowStart};

/// The longest period that can be counted: 285 years.
const NEVER: Duration = Duration::from_micros(MAX_UNITS);

impl Quota {
    /// Lets this many requests run at the same time: work *in flight*, such as slow uploads, streams
    /// and long queries.
    ///
    /// A request takes a token when it is admitted, and gives it back when its response has ended: its
    /// body was read or dropped, the service failed or panicked, or the client disconnected. The layer
    /// does that; in a handler, [`Permit::in_flight`](crate::Permit::in_flight) does. No time brings
    /// tokens, so [`lost_after`](Self::lost_after) is needed in a store that other processes share: a
    /// process that crashes gives nothing back. Without it, such a store answers with
    /// [an error](crate::RateLimited::is_unavailable).
    ///
    /// Nobody knows when a request ends. So a refusal has no
    /// [`retry_after`](crate::RateLimited::retry_after), and the header fields have no window.
    ///
    /// A limit of this name should not have a rate elsewhere, in a plan or before a restart: what was
    /// used of the rate would count as requests that run. [`replace`](crate::RateLimiter::replace)
    /// refuses that.
    ///
    /// Of the settings, it can have [`max_reserved`](Self::max_reserved), which bounds how many
    /// requests wait, and `lost_after`. As text it is `4 in flight`. The guide to
    /// [streams](crate::_guide::streams#at-most-four-at-once) says more.
    ///
    /// # Panics
    ///
    /// If `requests` is zero; at run time use [`try_in_flight`](Self::try_in_flight).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, Quota, RateLimiter};
    ///
    /// const UPLOADS: Limit = Limit::new("uploads", Quota::in_flight(2));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let first = limiter.limit(&UPLOADS).key("alice").await?.in_flight();
    /// let second = limiter.limit(&UPLOADS).key("alice").await?.in_flight();
    /// assert!(limiter.limit(&UPLOADS).key("alice").await.unwrap_err().is_refused());
    ///
    /// drop(first);
    /// let third = limiter.limit(&UPLOADS).key("alice").await?.in_flight();
    /// # drop((second, third));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "concurrency")]
    #[doc(alias = "concurrent")]
    #[doc(alias = "semaphore")]
    #[doc(alias = "limit_conn")]
    #[doc(alias = "ConcurrencyLimit")]
    #[must_use]
    #[track_caller]
    pub const fn in_flight(requests: u64) -> Self {
        match Self::try_in_flight(requests) {
            Ok(quota) => quota,
            Err(error) => error.panic(),
        }
    }

    /// [`in_flight`](Self::in_flight) for a number that is known at run time only.
    ///
    /// # Errors
    ///
    /// If `requests` is zero.
    pub const fn try_in_flight(requests: u64) -> Result<Self, QuotaError> {
        if requests == 0 {
            return Err(QuotaError(QuotaProblem::NoneInFlight));
        }
        match Self::check(Kind::FixedWindow, requests, NEVER) {
            Ok(quota) => {
                let start = Some(WindowStart::FirstUse);
                Ok(Self { start, counted: Counted::InFlight, ..quota })
            }
            Err(error) => Err(error),
        }
    }

    /// Sets after which time a token of a request [in flight](Self::in_flight) that was not given back
    /// counts as lost, and is there again; never if not set.
    ///
    /// A token is lost if its process crashes, or the store does not answer in time. It is there again
    /// after this time at the latest.
    ///
    /// Choose it longer than nearly all requests, such as an hour. It is a window that begins with the
    /// first request of a key that has none in flight. When the window ends, the requests that run
    /// then are no longer counted, and up to as many can run beside them until they have ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Quota};
    ///
    /// const UPLOADS: Quota = Quota::in_flight(4).lost_after(HOUR);
    /// assert_eq!(UPLOADS.to_string(), "4 in flight, lost_after 1 hour");
    /// ```
    #[doc(alias = "lease")]
    #[doc(alias = "ttl")]
    #[doc(alias = "expire")]
    #[must_use]
    pub const fn lost_after(mut self, time: Duration) -> Self {
        match self.counted {
            Counted::InFlight => self.period = time,
            Counted::Rate | Counted::RateLostAfter => self.counted = Counted::RateLostAfter,
        }
        self
    }

    /// Whether it counts requests [in flight](Self::in_flight).
    #[must_use]
    #[inline]
    pub const fn is_in_flight(&self) -> bool {
        matches!(self.counted, Counted::InFlight)
    }

    /// After which time a token in flight counts as lost; `None` if never, or if it is no quota of
    /// requests in flight.
    #[must_use]
    pub const fn get_lost_after(&self) -> Option<Duration> {
        match self.never_gains() || !self.is_in_flight() {
            true => None,
            false => Some(self.period),
        }
    }

    /// Whether no time brings tokens.
    pub(crate) const fn never_gains(&self) -> bool {
        self.is_in_flight() && self.period.as_micros() == NEVER.as_micros()
    }
}
