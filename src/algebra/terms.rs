//! How far into debt a charge may go, and how long it may wait.

use std::time::Duration;

use super::state::Units;
use crate::quota::MAX_UNITS;

/// How far a charge may go when the bucket is short.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::algebra::{Bucket, State, Terms, Verdict, charge};
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(1, SECOND).max_reserved(5))?;
/// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
/// let decide = |tokens, terms| {
///     let units = bucket.units(tokens).unwrap();
///     charge(&bucket, empty, units, terms, empty.ts).verdict()
/// };
/// let reserving = Terms::reserving(bucket.floor());
/// assert_eq!(decide(3, Terms::AT_ONCE), Verdict::Refused);
/// assert_eq!(decide(3, reserving), Verdict::Reserved);
/// assert_eq!(decide(6, reserving), Verdict::Refused);
/// assert_eq!(decide(3, reserving.within(Duration::from_secs(2))), Verdict::Refused);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    floor: Units,
    max_wait: u64,
}

impl Terms {
    /// Takes the units now or not at all: no debt, no wait.
    pub const AT_ONCE: Self = Self { floor: 0, max_wait: 0 };

    /// May leave as little as `floor` units, however long the wait.
    #[must_use]
    #[inline]
    pub const fn reserving(floor: Units) -> Self {
        Self { floor, max_wait: u64::MAX }
    }

    /// Waits at most this long, rounded down to the microsecond.
    ///
    /// A wait of 2^53 microseconds (285 years) or more is unlimited, because the scripts of Redis
    /// cannot count further.
    #[must_use]
    #[inline]
    pub fn within(mut self, max_wait: Duration) -> Self {
        let micros = u64::try_from(max_wait.as_micros()).unwrap_or(u64::MAX);
        self.max_wait = if micros < MAX_UNITS { micros } else { u64::MAX };
        self
    }

    /// The least units that the charge may leave.
    #[must_use]
    #[inline]
    pub const fn floor(&self) -> Units {
        self.floor
    }

    /// The longest wait, in microseconds.
    #[must_use]
    #[inline]
    pub const fn max_wait(&self) -> u64 {
        self.max_wait
    }

    /// Whether a charge may leave this much, and wait this long for it.
    #[must_use]
    #[inline]
    pub(crate) fn allow(&self, left: Units, wait: Duration) -> bool {
        left >= self.floor && wait.as_micros() <= u128::from(self.max_wait)
    }
}
