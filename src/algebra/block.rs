//! Refusing until an instant.

use super::{Bucket, State};
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// Closes a bucket until `end`, and says what to store: whatever is asked of it before then, even
/// nothing, is short.
///
/// The bucket is brought to the last tick before `end`, and left with less than nothing there: the
/// time until then brings it no tokens. So a state remains two numbers, of which the time may be one
/// to come, and every other function does with it what it does after a clock has gone back: it waits.
///
/// * A token bucket is empty at `end`, and gains from there on. A fixed window gains at its start
///   only, so that it stays closed until the end of the window in which `end` lies; the next one is
///   one unit short.
/// * What is in debt for longer than that stays so. Reservations that were made before keep their
///   instants; those that are made later come after `end`.
/// * Of two blocks the one that ends later holds, whichever came first. What is
///   [given back](super::refund) to a token bucket before the last tick does not open it.
/// * Other numbers ([`rescale`](super::rescale)) leave a token bucket closed until then. A fixed
///   window that gets other windows is closed at least until the one begins in which `end` lies.
/// * An `end` that is not after `now` changes nothing. One beyond 2^53 microseconds after the
///   epoch, in the year 2255, is that instant: scripts count no further.
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
/// // The first token comes in a tenth of a minute after the end.
/// let wait = charge(&bucket, blocked, one, Terms::AT_ONCE, now).wait();
/// assert_eq!(wait, HOUR + MINUTE / 10);
/// assert_eq!(bucket.refresh(blocked, now + HOUR).value, 0);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn block(bucket: &Bucket, state: State, end: Timestamp, now: Timestamp) -> State {
    let end = end.min(LAST);
    if end <= now {
        return bucket.refresh(state, now);
    }
    let last_tick = Timestamp::from_micros(end.as_micros().saturating_sub(1));
    let State { value, ts } = bucket.refresh(state, last_tick);
    // Only where the capacity is all that can be counted, there is no less than nothing.
    State { value: value.min(-1).max(bucket.deepest()), ts }
}

/// The last instant that a double counts exactly.
const LAST: Timestamp = Timestamp::from_micros(MAX_UNITS.cast_signed());

/// The most that giving back may leave in a bucket: nothing is to come in while it is closed.
pub(super) fn most(bucket: &Bucket, State { value, ts }: State, now: Timestamp) -> i64 {
    match ts > now && value < 0 {
        true => bucket.deepest().max(-1),
        false => bucket.capacity(),
    }
}
