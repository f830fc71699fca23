//! The numbers of a limit: how many tokens come in which time, and how many are saved up.
//!
//! A [`Quota`] is one of two [kinds](Kind), a token bucket or fixed windows. Its settings have the
//! same meaning for both.
//!
//! # Examples
//!
//! ```
//! use tollgate::{HOUR, MINUTE, Quota};
//!
//! // 10 a minute on average, and at most 20 at once.
//! const MESSAGES: Quota = Quota::token_bucket(10, MINUTE).capacity(20);
//! // 1,000 in each hour.
//! const EXPORTS: Quota = Quota::fixed_window(1_000, HOUR);
//!
//! // The same from a configuration file.
//! let from_text: Quota = "10 per minute, capacity 20".parse()?;
//! assert_eq!(from_text, MESSAGES);
//! # drop(EXPORTS);
//! # Ok::<(), tollgate::ParseError>(())
//! ```

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions)]

#[cfg(feature = "calendar")]
mod calendar;
mod counted;
mod error;
mod in_flight;
#[cfg(not(feature = "calendar"))]
mod no_calendar;
mod nothing;
mod period;
mod scale;
#[cfg(feature = "serde")]
mod serde;
mod text;
mod units;
mod window_start;

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::clock::Timestamp;

#[cfg(feature = "calendar")]
pub use self::calendar::{Calendar, Weekday};
use self::counted::Counted;
pub use self::error::QuotaError;
use self::error::QuotaProblem;
#[cfg(not(feature = "calendar"))]
pub(crate) use self::no_calendar::Calendar;
pub use self::period::{DAY, HOUR, MINUTE, SECOND, WEEK, days, hours, minutes};
pub(crate) use self::scale::Scale;
pub use self::units::MAX_UNITS;
pub(crate) use self::units::tokens_of;
pub(crate) use self::window_start::WindowStart;

pub(crate) mod kit {
    #[cfg(feature = "calendar")]
    pub use super::calendar::Calendar;
    #[cfg(not(feature = "calendar"))]
    pub use super::no_calendar::Calendar;
    pub use super::period::parse as parse_period;
}

/// How a limit gains tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "another kind is another formula for each store")]
pub enum Kind {
    /// Continuously, spread evenly over the period.
    TokenBucket,
    /// All at once, at the start of each period.
    FixedWindow,
}

/// The numbers of a limit: its rate and period, its capacity, and how deep it may owe.
///
/// | you know it as | here it is |
/// |---|---|
/// | GCRA, leaky bucket, cells | [`token_bucket`](Self::token_bucket): the same decisions |
/// | burst | [`capacity`](Self::capacity) |
/// | refill, replenish | the rate and the period of the constructor |
/// | sliding window | [`token_bucket`](Self::token_bucket), which has no windows at all; [which numbers] let run "never more than 100 in any minute" |
/// | fixed window, quota of a day | [`fixed_window`](Self::fixed_window) |
/// | semaphore, concurrency, `limit_conn` | [`in_flight`](Self::in_flight) |
///
/// Two quotas are equal if they count alike, however they are written: `10 per second` and `10 per
/// second, capacity 10` are.
///
/// A quota is checked as a whole when it becomes a [`Limit`](crate::Limit). That is at compile time
/// if the limit is a `const`. [`validated`](Self::validated) checks a quota that was read at run
/// time.
///
/// # What is exact
///
/// No rate is rounded. `4999 per 30 days` gains 4,999 tokens in 30 days, a year later as well.
///
/// Instants are exact to the [step](crate::algebra::Bucket::step) of the quota, which is a
/// microsecond for nearly all token buckets. Where the numbers are too large for that, it is 10
/// microseconds, or 100, and so on up to a second: the shortest in which they
/// [fit](Self::validated). For `4999 per 30 days` it is 0.1 ms. The steps of all buckets begin at the
/// same instants, in all stores. A token comes less than a step before or after the instant that the
/// rate says, and `retry_after` is exactly when it does.
///
/// # Text form
///
/// A quota prints and parses as text, for configuration files. Units may be plural, and in any case
/// where they are no abbreviations of one or two letters. Rates are whole numbers: 1.5 a second are
/// `3 per 2 seconds`.
///
/// ```
/// use tollgate::{MINUTE, Quota};
///
/// let quota: Quota = "10/minute, capacity 20".parse()?;
/// assert_eq!(quota, Quota::token_bucket(10, MINUTE).capacity(20));
/// assert_eq!(quota.to_string(), "10 per minute, capacity 20");
///
/// let quota: Quota = "10 per 2 Minutes".parse()?;
/// assert_eq!(quota.to_string(), "10 per 2 minutes");
///
/// let window: Quota = "fixed window: 40_000 per 1h 30m, shards 4".parse()?;
/// assert_eq!(window.to_string(), "fixed window: 40000 per 90 minutes, shards 4");
/// # Ok::<(), tollgate::ParseError>(())
/// ```
///
/// [which numbers]: crate::_guide::choosing#never-more-than-n-in-any-time
#[doc(alias = "throttle")]
#[doc(alias = "rate limit")]
#[doc(alias = "GCRA")]
#[doc(alias = "cells")]
#[doc(alias = "sliding window")]
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    kind: Kind,
    rate: u64,
    period: Duration,
    capacity: Option<u64>,
    max_reserved: Option<u64>,
    initial: Option<u64>,
    start: Option<WindowStart>,
    shards: u32,
    /// Where windows begin and end, if they are those of a calendar.
    calendar: Option<Calendar>,
    counted: Counted,
}

impl Quota {
    /// The most [`shards`](Self::shards) that a quota may have.
    ///
    /// [`peek`](crate::RateLimiter::peek), [`reset`](crate::RateLimiter::reset) and penalties ask
    /// the store for all shards in one step. A peek at 1,024 shards takes some 0.1 ms in memory. It
    /// takes 3 ms of a Redis server's time, in which the server decides nothing else.
    pub const MAX_SHARDS: u32 = units::MAX_SHARDS;

    /// Adds `rate` tokens every `period`, continuously, saving up to `rate` of them.
    ///
    /// In a window of one period that begins anywhere (a sliding window), up to twice the rate run: a
    /// full bucket, and what it gains. For "never more than 100 in any minute", take the capacity and
    /// the rate from [the guide](crate::_guide::choosing#never-more-than-n-in-any-time).
    ///
    /// # Panics
    ///
    /// If `rate` or `period` is zero, or `period` is not a whole number of microseconds. In a
    /// `const`, as below, that is a compile error; for numbers read at run time use
    /// [`try_token_bucket`](Self::try_token_bucket).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota};
    ///
    /// const MESSAGES: Quota = Quota::token_bucket(10, MINUTE).capacity(20);
    /// assert_eq!(MESSAGES.to_string(), "10 per minute, capacity 20");
    /// ```
    #[doc(alias = "leaky_bucket")]
    #[doc(alias = "leaky bucket")]
    #[doc(alias = "refill")]
    #[doc(alias = "replenish")]
    #[doc(alias = "gcra")]
    #[doc(alias = "per_second")]
    #[doc(alias = "per_minute")]
    #[doc(alias = "per_hour")]
    #[doc(alias = "with_period")]
    #[must_use]
    #[track_caller]
    pub const fn token_bucket(rate: u64, period: Duration) -> Self {
        match Self::try_token_bucket(rate, period) {
            Ok(quota) => quota,
            Err(error) => error.panic(),
        }
    }

    /// Adds `rate` tokens at the start of each `period`, saving up to `rate` of them.
    ///
    /// Without a [`start`](Self::start), the windows of each key begin at a time of its own, and not
    /// with its first request: of 5 an hour, a key may use 5 in the minute in which its first window
    /// ends, and 5 more after that. So clients do not all come back at once. Where they should begin
    /// with the first request, add [`from_first_use`](Self::from_first_use).
    /// [`Snapshot::resets_at`](crate::Snapshot::resets_at) says when the window of a key ends.
    ///
    /// # Panics
    ///
    /// As [`token_bucket`](Self::token_bucket); at run time use
    /// [`try_fixed_window`](Self::try_fixed_window).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Quota};
    ///
    /// // 100 an hour. Up to 100 that an hour leaves over can be used later.
    /// const EXPORTS: Quota = Quota::fixed_window(100, HOUR).capacity(200);
    /// assert_eq!(EXPORTS.to_string(), "fixed window: 100 per hour, capacity 200");
    /// ```
    #[doc(alias = "windowMs")]
    #[doc(alias = "window")]
    #[must_use]
    #[track_caller]
    pub const fn fixed_window(rate: u64, period: Duration) -> Self {
        match Self::try_fixed_window(rate, period) {
            Ok(quota) => quota,
            Err(error) => error.panic(),
        }
    }

    /// [`token_bucket`](Self::token_bucket) for numbers that are known at run time only.
    ///
    /// # Errors
    ///
    /// If `rate` or `period` is zero, or `period` is not a whole number of microseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, SECOND};
    ///
    /// let error = Quota::try_token_bucket(0, SECOND).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "quota of 0 per second is empty (rate and period must both be more than zero; \
    ///      `Quota::none()` grants nothing)"
    /// );
    /// ```
    pub const fn try_token_bucket(rate: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::check(Kind::TokenBucket, rate, period)
    }

    /// [`fixed_window`](Self::fixed_window) for numbers that are known at run time only.
    ///
    /// # Errors
    ///
    /// As [`try_token_bucket`](Self::try_token_bucket).
    pub const fn try_fixed_window(rate: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::check(Kind::FixedWindow, rate, period)
    }

    const fn check(kind: Kind, rate: u64, period: Duration) -> Result<Self, QuotaError> {
        if rate == 0 || period.is_zero() {
            return Err(QuotaError(QuotaProblem::Empty { rate, period }));
        }
        if units::micros(period).is_none() {
            return Err(QuotaError(QuotaProblem::Period { period }));
        }
        Ok(Self {
            kind,
            rate,
            period,
            capacity: None,
            max_reserved: None,
            initial: None,
            start: None,
            shards: 1,
            calendar: None,
            counted: Counted::Rate,
        })
    }

    /// Adds `rate` tokens when a day, a week or a month begins in a time zone, saving up to `rate` of
    /// them.
    ///
    /// The windows of all keys begin at the same instants, which [`Calendar`] says: 1,000 a month are
    /// 1,000 in February and in March. All settings are those of a fixed window, but for
    /// [`start`](Self::start): a [`capacity`](Self::capacity) above the rate rolls over what a window
    /// leaves, and reservations run when a later window begins.
    ///
    /// # Panics
    ///
    /// If `rate` is zero; at run time use [`try_calendar`](Self::try_calendar).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Quota;
    /// use tollgate::quota::Calendar;
    ///
    /// const BASIC: Quota = Quota::calendar(1_000, Calendar::monthly().zone("Europe/Berlin"));
    /// assert_eq!(BASIC.to_string(), "1000 per month in Europe/Berlin");
    /// assert_eq!("1000 per month in Europe/Berlin".parse(), Ok(BASIC));
    /// ```
    #[cfg(feature = "calendar")]
    #[doc(alias = "per_month")]
    #[doc(alias = "monthly")]
    #[doc(alias = "midnight")]
    #[must_use]
    #[track_caller]
    pub const fn calendar(rate: u64, calendar: Calendar) -> Self {
        match Self::try_calendar(rate, calendar) {
            Ok(quota) => quota,
            Err(error) => error.panic(),
        }
    }

    /// [`calendar`](Self::calendar) for a rate that is known at run time only.
    ///
    /// # Errors
    ///
    /// If `rate` is zero.
    #[cfg(feature = "calendar")]
    pub const fn try_calendar(rate: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        Self::of_calendar(rate, calendar)
    }

    pub(crate) const fn of_calendar(rate: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        match Self::check(Kind::FixedWindow, rate, calendar.period()) {
            Ok(quota) => Ok(Self { calendar: Some(calendar), ..quota }),
            Err(error) => Err(error),
        }
    }

    /// Sets how many tokens the bucket saves up; the rate if not set.
    ///
    /// Zero is allowed: then nothing is saved up, and every request waits for its turn in a
    /// reservation.
    #[doc(alias = "burst")]
    #[doc(alias = "burst_size")]
    #[doc(alias = "allow_burst")]
    #[must_use]
    pub const fn capacity(mut self, tokens: u64) -> Self {
        self.capacity = Some(tokens);
        self
    }

    /// Sets how many tokens into debt reservations may go; as far as can be counted if not set, which
    /// is at least ten times the capacity.
    ///
    /// Zero means no debt at all.
    #[must_use]
    pub const fn max_reserved(mut self, tokens: u64) -> Self {
        self.max_reserved = Some(tokens);
        self
    }

    /// Sets how many tokens a bucket has on its first use; the capacity if not set.
    ///
    /// With fewer than the capacity, a full bucket differs from an absent one. So the memory store
    /// keeps full buckets of such a limit until its bound needs the room, and an evicted bucket
    /// starts here again. A bucket that was full when the quota of its limit changed starts here as
    /// well.
    #[must_use]
    pub const fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// Aligns the windows: one starts at this instant, and others at every whole number of periods
    /// before and after.
    ///
    /// Only for fixed windows, and not for those of a calendar, which says where they start.
    #[must_use]
    pub const fn start(mut self, start: Timestamp) -> Self {
        self.start = Some(WindowStart::At(start));
        self
    }

    /// Begins the windows of a key with its first request, as most people understand "5 an hour":
    /// after the fifth request, the next one is admitted an hour after the first.
    ///
    /// The first request is one that finds the bucket full, or unused, so the next window begins with
    /// the first request after the end of this one. If the bucket is still short then, as after
    /// debt or with a [`capacity`](Self::capacity) above the rate, windows follow on each other until
    /// it is full. A [block](crate::RateLimiter::block) counts as a request here. Each
    /// [shard](Self::shards) has windows of its own.
    ///
    /// Only for fixed windows, and not for those of a calendar. Of this and [`start`](Self::start), the
    /// last one counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Quota};
    ///
    /// const LOGIN: Quota = Quota::fixed_window(5, HOUR).from_first_use();
    /// assert_eq!(LOGIN.to_string(), "fixed window: 5 per hour, start first use");
    /// ```
    #[must_use]
    pub const fn from_first_use(mut self) -> Self {
        self.start = Some(WindowStart::FirstUse);
        self
    }

    /// Splits a hot limit into this many buckets; one if not set.
    ///
    /// Each has an equal part of the rate, the capacity and max_reserved.
    ///
    /// There are at most [`MAX_SHARDS`](Self::MAX_SHARDS); the number is checked together with the
    /// others.
    ///
    /// A request looks at two shards at random. The fuller one pays, or both together if it is
    /// short of tokens.
    ///
    /// # When to split
    ///
    /// Split a limit when its one bucket gets more requests than the store can decide. In Redis,
    /// one key is the work of one processor. In memory, a decision holds the lock of its bucket for
    /// a small part of its time only, while a second shard makes the decision two and a half times
    /// as long: with few processors, shards cost more than they gain. Measure first.
    ///
    /// # How many
    ///
    /// Use as few as carry the load, and make each large enough: [`capacity`](Self::capacity)
    /// divided by the number of shards should be at least 20 requests of the usual cost. With a
    /// steady load at exactly the rate, shards refuse this many requests more than one bucket does:
    ///
    /// | requests that a shard holds | 4 shards | 10 shards | 32 shards |
    /// |---|---|---|---|
    /// | 1 | 15.7 % | 23.2 % | 26.6 % |
    /// | 5 | 0.63 % | 0.73 % | 0.56 % |
    /// | 10 | 0.14 % | 0.14 % | 0.07 % |
    /// | 20 | 0.03 % | 0.03 % | 0.02 % |
    /// | 100 | 0.001 % | 0.001 % | |
    ///
    /// # What it costs
    ///
    /// * Occasionally it refuses a request that a single bucket would admit, even a retry at the
    ///   advertised time, because the retry looks at other shards. It never admits a request too
    ///   early: in every window of time, no more requests run than the same limit allows without
    ///   shards, as long as no cost is larger than what one shard holds.
    /// * A single request can take what two shards hold, and reserve what two may owe. A larger
    ///   cost is an [error](crate::RateLimited::is_too_large), as no wait would help. Where that is
    ///   too little, use fewer shards, or scale rate and period up together, so that more tokens
    ///   are saved up.
    /// * `remaining` of a permit is an estimate from the two shards that were looked at.
    ///   [`peek`](crate::RateLimiter::peek) returns the sum of all shards at one instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// // 40,000 tokens a minute for all clients together, in shards of 4,000.
    /// static LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE).shards(10));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = RateLimiter::in_memory();
    /// assert!(limiter.limit(&LLM).cost(8_000).await.is_ok());
    /// assert!(limiter.limit(&LLM).cost(8_001).await.unwrap_err().is_too_large());
    /// # }
    /// ```
    #[must_use]
    pub const fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// How the limit gains its tokens.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The tokens gained in each period.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// The time in which `rate` tokens are gained. A month of a calendar is said to have 31 days.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The tokens saved up at most: the capacity, or the rate if none was set.
    #[must_use]
    pub const fn get_capacity(&self) -> u64 {
        match self.capacity {
            Some(tokens) => tokens,
            None => self.rate,
        }
    }

    /// The deepest debt in tokens that reservations may make; `None` is without limit.
    #[must_use]
    pub const fn get_max_reserved(&self) -> Option<u64> {
        self.max_reserved
    }

    /// The tokens in a bucket on its first use.
    #[must_use]
    pub const fn get_initial(&self) -> u64 {
        match self.initial {
            Some(tokens) => tokens,
            None => self.get_capacity(),
        }
    }

    /// Where a window begins, if that was set as an instant.
    #[must_use]
    pub const fn get_start(&self) -> Option<Timestamp> {
        match self.start {
            Some(WindowStart::At(start)) => Some(start),
            _ => None,
        }
    }

    /// Whether windows begin with the first use of a full bucket.
    #[must_use]
    pub const fn is_from_first_use(&self) -> bool {
        matches!(self.start, Some(WindowStart::FirstUse))
    }

    /// Where the windows begin, if they are those of a calendar.
    #[cfg(feature = "calendar")]
    #[must_use]
    pub const fn get_calendar(&self) -> Option<Calendar> {
        self.calendar
    }

    /// The calendar of the windows, also without the feature, where there is none.
    #[doc(hidden)]
    #[must_use]
    pub const fn windows(&self) -> Option<Calendar> {
        self.calendar
    }

    /// The number of buckets the limit is split into.
    #[must_use]
    pub const fn get_shards(&self) -> u32 {
        self.shards
    }

    /// Where windows begin, if the quota says so: an instant is the first from the epoch on.
    pub(crate) const fn first_start(&self) -> Option<WindowStart> {
        let (Some(WindowStart::At(start)), Some(period)) = (self.start, units::micros(self.period))
        else {
            return self.start;
        };
        // A period is at most 2^53.
        match start.as_micros().checked_rem_euclid(period.get().cast_signed()) {
            Some(micros) => Some(WindowStart::At(Timestamp::from_micros(micros))),
            None => self.start,
        }
    }

    /// All fields: quotas of which they are equal are equal, which is quick to see.
    const fn fields(&self) -> QuotaFields {
        let tokens = (self.rate, self.capacity, self.max_reserved, self.initial);
        (self.kind, self.period, tokens, (self.start, self.calendar), self.shards, self.counted)
    }

    /// What makes two quotas equal.
    const fn numbers(&self) -> QuotaNumbers {
        let (first, start) = (self.get_initial(), self.first_start());
        let tokens = (self.rate, self.get_capacity(), self.max_reserved, first);
        (self.kind, self.period, tokens, (start, self.calendar), self.shards, self.counted)
    }
}

type QuotaNumbers = QuotaTuple<(u64, u64, Option<u64>, u64)>;
type QuotaFields = QuotaTuple<(u64, Option<u64>, Option<u64>, Option<u64>)>;
type QuotaTuple<T> = (Kind, Duration, T, (Option<WindowStart>, Option<Calendar>), u32, Counted);

/// Quotas are equal if they count alike, however they are written.
impl PartialEq for Quota {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields() || self.numbers() == other.numbers()
    }
}

impl Eq for Quota {}

impl Hash for Quota {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.numbers().hash(hasher);
    }
}
