//! Giving back to a bucket what a charge took.

use super::bucket::Bucket;
use super::state::{State, Units};
use crate::clock::Timestamp;

/// Gives `units` back to a bucket at `now`, up to its capacity, and returns what to store.
///
/// Negative units are taken, into debt if need be, and never refused: the work that they pay for
/// has been done. The debt stops at the deepest that can be counted.
///
/// A bucket that is [blocked](super::block) stays blocked: units that would lift it out of debt
/// before the block ends are lost. So are those of a bucket that was in debt when the clock was set
/// back, until the clock has caught up: its state is the same.
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
    give(bucket, before, units, bucket.refund_cap(before, now))
}

/// Undoes a charge of `units`, and returns what to store: as if the charge had never been made.
///
/// The bucket must be [`untouched`] since that charge. Unlike [`refund`], this lifts a bucket out
/// of debt at any time: an untouched bucket has not been blocked since, unless its clock was set
/// back, and the block ends before the clock has caught up.
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

fn give(bucket: &Bucket, State { value, ts }: State, units: Units, cap: Units) -> State {
    State { value: value.saturating_add(units).min(cap).max(bucket.min_value()), ts }
}

/// Whether nothing was taken from a bucket, nor given back to it, since a charge `left` it so.
///
/// Such a charge can be [undone](undo) exactly.
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
