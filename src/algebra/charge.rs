//! Taking from a bucket and giving back to it.

use std::time::Duration;

use super::block::most;
use super::{Bucket, State, Units};
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// What a bucket answered to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The units were there: the work may run now.
    Admitted,
    /// The units will be there after the wait: the work may run then, without asking again.
    Reserved,
    /// The units are not there: asking again after the wait may help.
    Refused,
}

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
/// let ask = |tokens, terms| {
///     let units = bucket.units(tokens).unwrap();
///     charge(&bucket, empty, units, terms, empty.ts).verdict()
/// };
/// let patient = Terms::reserving(bucket.floor());
/// assert_eq!(ask(3, Terms::AT_ONCE), Verdict::Refused);
/// assert_eq!(ask(3, patient), Verdict::Reserved);
/// assert_eq!(ask(6, patient), Verdict::Refused);
/// assert_eq!(ask(3, patient.within(Duration::from_secs(2))), Verdict::Refused);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    floor: Units,
    max_wait: u64,
}

impl Terms {
    /// Takes what is there or nothing: no debt, no waiting.
    pub const AT_ONCE: Self = Self { floor: 0, max_wait: 0 };

    /// May leave as little as `floor` units, however long the wait.
    #[must_use]
    #[inline]
    pub const fn reserving(floor: Units) -> Self {
        Self { floor, max_wait: u64::MAX }
    }

    /// Waits at most this long, rounded down to the microsecond. From 2^53 of them on, which are 285
    /// years, that is for ever: scripts count no further.
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

    /// Whether they let a charge leave this much after this wait.
    #[must_use]
    #[inline]
    pub(crate) fn allow(&self, left: Units, wait: Duration) -> bool {
        left >= self.floor && wait.as_micros() <= u128::from(self.max_wait)
    }
}

/// What a charge came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charged {
    verdict: Verdict,
    before: State,
    after: State,
    wait: u64,
}

impl Charged {
    /// Whether the work may run, and when.
    #[must_use]
    #[inline]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The bucket, refreshed to now, without the charge: what stands if it is refused.
    #[must_use]
    #[inline]
    pub const fn before(&self) -> State {
        self.before
    }

    /// The bucket with the charge taken: what to store, unless it is refused.
    #[must_use]
    #[inline]
    pub const fn after(&self) -> State {
        self.after
    }

    /// The bucket as it stands once the verdict is carried out.
    #[must_use]
    pub const fn state(&self) -> State {
        match self.verdict {
            Verdict::Refused => self.before,
            Verdict::Admitted | Verdict::Reserved => self.after,
        }
    }

    /// How long until the units are there: zero if they are.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_micros(self.wait)
    }

    /// The wait in microseconds.
    #[inline]
    pub(crate) const fn wait_micros(&self) -> u64 {
        self.wait
    }
}

/// Takes `units` from a bucket at `now`, and says what to store.
///
/// A refused charge stores nothing: being refused must never make the wait longer. Less than no
/// units counts as none.
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

/// Gives `units` back to a bucket at `now`, as far as they fit in, and says what to store.
///
/// Less than no units are taken, into debt if need be, and never refused: the work that they pay
/// for has been done. Only what is deeper than can be counted is let off. A bucket that is in debt
/// at an instant to come, as after a [`block`](super::block), is not brought out of it: what does
/// not fit in beside the debt is lost.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, refund};
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(2, SECOND))?;
/// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
/// let refunded = refund(&bucket, empty, i64::MAX, empty.ts);
/// assert_eq!(refunded.value, bucket.capacity());
///
/// let owed = refund(&bucket, empty, -500_000, empty.ts);
/// assert_eq!(bucket.tokens(owed.value).to_string(), "-1");
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn refund(bucket: &Bucket, state: State, units: Units, now: Timestamp) -> State {
    let before = bucket.refresh(state, now);
    give(bucket, before, units, most(bucket, before, now))
}

/// Gives `units` back that a charge has just taken from a bucket which is [`untouched`] since, and
/// says what to store: as if the charge had never been made.
///
/// Unlike [`refund`], it brings a bucket out of debt at any time, as nobody has closed it since.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, Terms, charge, undo};
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(1, SECOND))?;
/// let now = Timestamp::UNIX_EPOCH;
/// let empty = State { value: 0, ts: now };
/// let owed = charge(&bucket, empty, 5_000_000, Terms::reserving(bucket.floor()), now).after();
/// assert_eq!(undo(&bucket, owed, 5_000_000, now), empty);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn undo(bucket: &Bucket, state: State, units: Units, now: Timestamp) -> State {
    give(bucket, bucket.refresh(state, now), units, bucket.capacity())
}

fn give(bucket: &Bucket, State { value, ts }: State, units: Units, most: Units) -> State {
    State { value: value.saturating_add(units).min(most).max(bucket.deepest()), ts }
}

/// Whether nothing has been taken from a bucket, nor given back to it, since a charge `left` it.
///
/// Such a charge can be undone exactly: with its units given back, the bucket is as if it had
/// never been made.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, Terms, charge, untouched};
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(1, SECOND))?;
/// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
/// let reserve = |state| charge(&bucket, state, 1_000_000, Terms::reserving(bucket.floor()), empty.ts);
///
/// let first = reserve(empty).after();
/// let second = reserve(first).after();
/// let later = empty.ts + SECOND / 2;
/// assert!(untouched(&bucket, second, second, later));
/// assert!(!untouched(&bucket, second, first, later));
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn untouched(bucket: &Bucket, state: State, left: State, now: Timestamp) -> bool {
    bucket.refresh(state, now) == bucket.refresh(left, now)
}
