//! Taking from a bucket.

use std::time::Duration;

use super::bucket::Bucket;
use super::state::{State, Units};
use super::terms::Terms;
use crate::clock::Timestamp;

/// What a bucket answered to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The units were available: the work may run now.
    Admitted,
    /// The units are taken in advance: the work may run after the wait, without another charge.
    Reserved,
    /// The units are not available: another attempt after the wait may succeed.
    Refused,
}

/// The result of a charge: the verdict, the wait, and the state before and after.
///
/// A charge on two shards has two states, in the order in which the shards were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charged<S = State> {
    pub(super) verdict: Verdict,
    pub(super) before: S,
    pub(super) after: S,
    pub(super) wait: u64,
}

impl<S: Copy> Charged<S> {
    /// Whether the work may run, and when.
    #[must_use]
    #[inline]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The bucket, refreshed to now, without the charge.
    #[must_use]
    #[inline]
    pub const fn before(&self) -> S {
        self.before
    }

    /// The bucket with the charge taken: what to store, unless it is refused.
    #[must_use]
    #[inline]
    pub const fn after(&self) -> S {
        self.after
    }

    /// The bucket after the verdict: without the charge if it was refused, with it otherwise.
    #[must_use]
    pub const fn state(&self) -> S {
        match self.verdict {
            Verdict::Refused => self.before,
            Verdict::Admitted | Verdict::Reserved => self.after,
        }
    }

    /// How long until the units are available: zero if they are now.
    ///
    /// For a refusal by two shards, this is the smallest wait after which they would admit the
    /// charge, if nothing else is taken from them. No wait suffices for more units than two
    /// capacities, and the value is meaningless then.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_micros(self.wait)
    }

    /// The same charge with another wait, in microseconds.
    pub(super) const fn with_wait(mut self, wait: u64) -> Self {
        self.wait = wait;
        self
    }

    /// The wait in microseconds.
    #[inline]
    pub(crate) const fn wait_micros(&self) -> u64 {
        self.wait
    }
}

/// Takes `units` from a bucket at `now`, and returns what to store.
///
/// A refused charge takes nothing, so a refusal never makes the wait longer. Negative units count
/// as zero.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::algebra::{Bucket, State, Terms, Verdict, charge};
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(2, SECOND))?;
/// let now = Timestamp::UNIX_EPOCH;
/// let empty = State { value: 0, ts: now };
/// let one = i64::try_from(bucket.token()).unwrap();
///
/// let charged = charge(&bucket, empty, one, Terms::AT_ONCE, now);
/// assert_eq!(charged.verdict(), Verdict::Refused);
/// assert_eq!(charged.wait(), Duration::from_millis(500));
/// assert_eq!(charged.state(), empty);
///
/// let charged = charge(&bucket, empty, one, Terms::reserving(bucket.floor()), now);
/// assert_eq!(charged.verdict(), Verdict::Reserved);
/// assert_eq!(charged.state().value, -one);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
#[inline]
pub fn charge(
    bucket: &Bucket,
    state: State,
    units: Units,
    terms: Terms,
    now: Timestamp,
) -> Charged {
    let before = bucket.refresh(state, now);
    let left = before.value.saturating_sub(units.max(0));
    let after = State { value: left, ts: before.ts };
    if left >= 0 {
        return Charged { verdict: Verdict::Admitted, before, after, wait: 0 };
    }
    let wait = bucket.gained_at(before, left.unsigned_abs()).micros_since(now);
    let reserved = terms.allow(left, Duration::from_micros(wait));
    let verdict = if reserved { Verdict::Reserved } else { Verdict::Refused };
    Charged { verdict, before, after, wait }
}
