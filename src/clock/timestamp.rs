//! Instants, and their conversions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant: a whole number of microseconds since the Unix epoch.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Timestamp;
///
/// let noon = Timestamp::from_micros(43_200_000_000);
/// assert_eq!(noon + Duration::from_secs(1), Timestamp::from_micros(43_201_000_000));
/// assert_eq!(noon.since(Timestamp::UNIX_EPOCH), Duration::from_secs(43_200));
/// ```
///
/// As a text, and as the time of the standard library:
///
/// ```
/// use std::time::SystemTime;
/// use tollgate::Timestamp;
///
/// let time: Timestamp = "2026-01-31T12:00:00Z".parse()?;
/// assert_eq!(time, Timestamp::from_unix_seconds(1_769_860_800));
/// assert_eq!(time.to_string(), "2026-01-31T12:00:00Z");
///
/// let system = SystemTime::from(time);
/// assert_eq!(Timestamp::from(system), time);
/// # Ok::<(), tollgate::ParseError>(())
/// ```
#[doc(alias("rfc3339", "to_rfc3339"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Midnight UTC of 1 January 1970.
    pub const UNIX_EPOCH: Self = Self(0);

    /// The instant this many microseconds after the Unix epoch, or before it if negative.
    #[must_use]
    #[inline]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The microseconds since the Unix epoch, negative before it.
    #[must_use]
    #[inline]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The instant this many seconds after the Unix epoch, or before it if negative; the first or
    /// the last instant there is if that overflows.
    ///
    /// ```
    /// use tollgate::Timestamp;
    ///
    /// assert_eq!(Timestamp::from_unix_seconds(2), Timestamp::from_micros(2_000_000));
    /// ```
    #[must_use]
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MICROS_PER_SECOND))
    }

    /// The whole seconds since the Unix epoch, rounded down; negative before it.
    ///
    /// A client that comes back at this second may be up to a second early. For header fields and
    /// the like, use `Retry-After`, or round up.
    ///
    /// ```
    /// use tollgate::Timestamp;
    ///
    /// assert_eq!(Timestamp::from_micros(1_999_999).as_unix_seconds(), 1);
    /// assert_eq!(Timestamp::from_micros(-1).as_unix_seconds(), -1);
    /// ```
    #[must_use]
    pub const fn as_unix_seconds(self) -> i64 {
        // Down, also before the epoch: half a second before it is in the second -1.
        self.0.div_euclid(MICROS_PER_SECOND)
    }

    /// How long `self` is after `earlier`; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    /// [`since`](Self::since), as a bare number of microseconds.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub const fn micros_since(self, earlier: Self) -> u64 {
        // Zero for a clock that went back, which gains no tokens then. The distance of two `i64`
        // fits a `u64`, while a subtraction could overflow.
        if self.0 <= earlier.0 { 0 } else { self.0.abs_diff(earlier.0) }
    }

    /// The instant `by` later, rounded down to the microsecond; the last instant there is if that
    /// overflows.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        self.plus_micros(u64::try_from(by.as_micros()).unwrap_or(u64::MAX))
    }

    /// [`saturating_add`](Self::saturating_add) for a bare number of microseconds.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub const fn plus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_add_unsigned(micros))
    }
}

/// As [`Timestamp::saturating_add`].
impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        self.saturating_add(later)
    }
}

/// The same instant. On a platform that cannot represent it (Windows, before the year 1601), the
/// Unix epoch.
impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_micros(time.0.unsigned_abs());
        let system = match time < Timestamp::UNIX_EPOCH {
            true => UNIX_EPOCH.checked_sub(distance),
            false => UNIX_EPOCH.checked_add(distance),
        };
        system.unwrap_or(UNIX_EPOCH)
    }
}

/// Rounds down to the microsecond. A time more than 292,000 years from the Unix epoch is the last
/// instant, or the first.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        // In 128 bits, no distance between two times overflows.
        let signed = |micros: u128| i128::try_from(micros).unwrap_or(i128::MAX);
        let micros = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => signed(after.as_micros()),
            // Down is away from the epoch here.
            Err(before) => signed(before.duration().as_nanos().div_ceil(1_000)).saturating_neg(),
        };
        let end = if micros < 0 { i64::MIN } else { i64::MAX };
        Self(i64::try_from(micros).unwrap_or(end))
    }
}

const MICROS_PER_SECOND: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Around the ends, around the epoch, and any.
    fn timestamps() -> impl Strategy<Value = Timestamp> {
        let year_9999 = 253_402_300_799_999_999_i64;
        let ends = prop::sample::select(vec![i64::MIN, -1, 0, 999_999, year_9999, i64::MAX]);
        let near = (ends, -2..=2_i64).prop_map(|(end, off)| end.saturating_add(off));
        let today = 0..=year_9999;
        prop_oneof![near, today, any::<i64>()].prop_map(Timestamp::from_micros)
    }

    proptest! {
        #[test]
        fn a_timestamp_comes_back_from_each_of_its_forms(time in timestamps()) {
            prop_assert_eq!(Timestamp::from(SystemTime::from(time)), time);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
            let seconds = Timestamp::from_unix_seconds(time.as_unix_seconds());
            let is_first = time.as_micros() < i64::MIN + 1_000_000;
            prop_assert!(is_first || seconds <= time && time.since(seconds) < Duration::from_secs(1));
        }
    }

    #[test]
    fn seconds_beyond_the_ends_are_the_ends() {
        assert_eq!(Timestamp::from_unix_seconds(i64::MAX).as_micros(), i64::MAX);
        assert_eq!(Timestamp::from_unix_seconds(i64::MIN).as_micros(), i64::MIN);
    }

    #[test]
    fn a_time_of_the_system_is_rounded_down() {
        let nanos = Duration::from_nanos;
        let at = |time: Option<SystemTime>| Timestamp::from(time.unwrap()).as_micros();
        assert_eq!(at(UNIX_EPOCH.checked_add(nanos(1_999))), 1);
        assert_eq!(at(UNIX_EPOCH.checked_sub(nanos(1))), -1);
        assert_eq!(at(UNIX_EPOCH.checked_sub(nanos(1_001))), -2);
    }

    #[test]
    fn a_time_that_is_too_far_is_the_last_instant_or_the_first() {
        let far = Duration::from_micros(u64::MAX);
        let at = |time: Option<SystemTime>| Timestamp::from(time.unwrap()).as_micros();
        assert_eq!(at(UNIX_EPOCH.checked_add(far)), i64::MAX);
        assert_eq!(at(UNIX_EPOCH.checked_sub(far)), i64::MIN);
    }
}
