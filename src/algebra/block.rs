//! Blocking a bucket until an instant.

use super::bucket::Bucket;
use super::state::State;
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// Blocks a bucket until `end`, and returns what to store.
///
/// Every charge before `end` finds the bucket short, even one of zero units.
///
/// The state moves to the last tick before `end`, with a value below zero. Elapsed time below zero
/// counts as zero, so the bucket gains nothing until then. To all other functions the state looks
/// like one that a clock stepping backwards left behind. For example, a block of an hour on a full
/// bucket at 12:00:00 stores -1 unit at 12:59:59.999999.
///
/// * A token bucket is empty at `end`, and gains from there on. A fixed window gains only when a
///   window starts, so it stays blocked until the window in which `end` lies is over; the next
///   window is one unit short. A token bucket that counts in longer
///   [steps](crate::Quota#what-is-exact) than microseconds stays blocked until the step is over, and
///   in that step it looks like one in debt. Where windows begin with the
///   [first use](crate::Quota::from_first_use), a block on a full bucket is one.
/// * Deeper debt is kept. Reservations made before the block keep their instants, and later ones
///   come after `end`.
/// * Of two blocks the one that ends later wins, in either order. A [`refund`](super::refund) does
///   not end the block of a token bucket before its last step.
/// * A changed quota ([`rescale`](super::rescale)) does not end the block of a token bucket before
///   its last step. A fixed window stays blocked at least until the start of the window in which
///   `end` lies. From there on the block looks like debt, which counts as used.
/// * An `end` that is not after `now` changes nothing. One beyond 2^53 microseconds after the
///   epoch, in the year 2255, is cut to that instant: the scripts of Redis cannot count further.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, Terms, block, charge};
/// use tollgate::{HOUR, MINUTE, Quota, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(10, MINUTE))?;
/// let now = Timestamp::UNIX_EPOCH;
/// let full = State { value: bucket.capacity(), ts: now };
///
/// let blocked = block(&bucket, full, now + HOUR, now);
/// let one = i64::try_from(bucket.token()).unwrap();
/// // The first token is there a tenth of a minute after the end.
/// let wait = charge(&bucket, blocked, one, Terms::AT_ONCE, now).wait();
/// assert_eq!(wait, HOUR + MINUTE / 10);
/// assert_eq!(bucket.refresh(blocked, now + HOUR).value, 0);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn block(bucket: &Bucket, state: State, end: Timestamp, now: Timestamp) -> State {
    let end = end.min(LAST);
    let held = bucket.refresh(state, now);
    if end <= now {
        return held;
    }
    let last_tick = Timestamp::from_micros(end.as_micros().saturating_sub(1));
    // Windows that begin with the first use follow on each other from the block on.
    let State { value, ts } = bucket.seen_by(bucket).refresh(held, last_tick);
    // If the capacity is all 2^53 units that can be counted, no value below zero is left to store.
    let blocked = State { value: value.min(-1).max(bucket.min_value()), ts };
    // The time of a window of a calendar that is yet to come is told from the present one.
    if bucket.calendar().is_some() { bucket.refresh(blocked, now) } else { blocked }
}

/// The last instant that a double counts exactly.
const LAST: Timestamp = Timestamp::from_micros(MAX_UNITS.cast_signed());
