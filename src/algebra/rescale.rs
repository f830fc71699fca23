//! Carrying a bucket over when the numbers of its limit change.

use super::{Bucket, State};
use crate::clock::Timestamp;

/// Says what a bucket of `old` numbers holds when `new` ones take over at `now`.
///
/// What was used stays used: the units are rescaled by the ratio of the two tokens, rounded down,
/// and clamped to the new capacity. The change itself never refills. A bucket of which nothing was
/// used is like none, under the new numbers as under the old. `phase` is where windows begin, as
/// for [`Bucket::absent`].
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, rescale};
/// use tollgate::{HOUR, MINUTE, Quota, Timestamp};
///
/// let (free, pro) = (Quota::token_bucket(10, HOUR), Quota::token_bucket(100, MINUTE));
/// let (free, pro) = (Bucket::new(&free)?, Bucket::new(&pro)?);
/// let now = Timestamp::UNIX_EPOCH;
///
/// let three = State { value: 3 * 360_000_000, ts: now };
/// let upgraded = rescale(&free, &pro, three, now, now);
/// assert_eq!(pro.tokens(upgraded.value).to_string(), "3");
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
    if old.forgets() && value >= old.capacity() {
        // It may have been dropped, or not: the answer must not depend on that.
        return new.absent(now, phase);
    }
    let scaled = i128::from(value).saturating_mul(i128::from(new.token()));
    let scaled = scaled.checked_div_euclid(i128::from(old.token())).unwrap_or(0);
    // Debt too deep for the new numbers stays as deep as they can count.
    let deepest = new.floor().min(0);
    let value = i64::try_from(scaled).unwrap_or(deepest).clamp(deepest, new.capacity());
    let same_steps =
        old.kind() == new.kind() && old.step() == new.step() && old.start() == new.start();
    // New windows begin where the new numbers say; what this one gained is in the value already.
    let ts = if same_steps { ts } else { new.absent(now.max(ts), phase).ts };
    State { value, ts }
}
