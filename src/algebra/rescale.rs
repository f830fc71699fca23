//! Converting a bucket when the numbers of its limit change.

use super::bucket::Bucket;
use super::state::State;
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// Returns the state of a bucket when the quota of its limit changes from `old` to `new` at `now`.
///
/// What was used stays used: `used = old capacity - value` in tokens, and the new value is
/// `new capacity - used`, below zero if need be. `phase` is an instant at which a window starts, as
/// for [`Bucket::absent`].
///
/// * Debt is used as well: what lies below zero adds to the capacity.
/// * `used` is rounded up to a whole unit of the new numbers, so less than a unit is lost. Whole
///   tokens are whole units under any numbers, so they are exact, and however often the numbers
///   change at one instant, `used` never falls and never passes the next whole token. (More than
///   the 2^53 units that can be counted is cut to that.)
/// * A bucket of which nothing is used becomes an [absent](Bucket::absent) one of the new quota:
///   full, or at its `initial`. Whether it was stored or had been dropped makes no difference.
/// * If `old` starts below its capacity (`initial`), the tokens that it has not gained yet count as
///   used.
/// * A [blocked](super::block) state, which has a value below zero and a time yet to come, stays
///   blocked: its value stays below zero, and its time does not get earlier. Where the new windows
///   start at other times, it is blocked until the end of the first window that starts after that.
///
/// Each shard is converted by itself, and keeps what was used of it, whatever the number of shards.
/// If that number grows, the new shards are absent; if it falls, some shards are not asked any
/// more.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, rescale};
/// use tollgate::{HOUR, MINUTE, Quota, Timestamp};
///
/// let (free, pro) = (Quota::token_bucket(3, HOUR), Quota::token_bucket(100, MINUTE));
/// let (free, pro) = (Bucket::new(&free)?, Bucket::new(&pro)?);
/// let now = Timestamp::UNIX_EPOCH;
///
/// let empty = State { value: 0, ts: now };
/// let upgraded = rescale(&free, &pro, empty, now, now);
/// assert_eq!(pro.tokens(upgraded.value).to_string(), "97");
/// assert_eq!(rescale(&pro, &free, upgraded, now, now), empty);
///
/// let downgraded = rescale(&pro, &free, empty, now, now);
/// assert_eq!(free.tokens(downgraded.value).to_string(), "-97");
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn rescale(
    old: &Bucket,
    new: &Bucket,
    state: State,
    now: Timestamp,
    phase: Timestamp,
) -> State {
    let State { value, ts } = old.refresh(state, now);
    let absent = new.absent(now.max(ts), phase);
    let used = old.missing(value).min(MAX_UNITS);
    if used == 0 {
        return absent;
    }
    let used = scale_up(used, new.token(), old.token()).min(MAX_UNITS);
    let left = new.capacity().saturating_sub_unsigned(used);
    if value >= 0 || ts <= now {
        return State { value: left, ts: absent.ts };
    }
    // Blocked. A window that starts before `ts` would gain too soon, or count as one without a
    // block.
    let next = absent.ts.plus_micros(new.step());
    let counts = next.as_micros() < MAX_UNITS.cast_signed();
    let ts = if absent.ts < ts && counts { next } else { absent.ts };
    State { value: left.min(-1).max(new.min_value()), ts }
}

/// `units * to / from`, rounded up.
fn scale_up(units: u64, to: u64, from: u64) -> u64 {
    let product = u128::from(units).saturating_mul(u128::from(to));
    // A token is worth a unit at least, so nothing is divided by zero.
    let whole = product.checked_div(u128::from(from)).unwrap_or(0);
    let has_rest = product.checked_rem(u128::from(from)).is_some_and(|rest| rest > 0);
    u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(u64::from(has_rest))
}
