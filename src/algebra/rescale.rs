//! Carrying a bucket over when the numbers of its limit change.

use super::{Bucket, State};
use crate::clock::Timestamp;

/// Says what a bucket of `old` numbers holds when `new` ones take over at `now`.
///
/// What was used stays used: the units are rescaled by the ratio of the two tokens, rounded down,
/// and clamped to the new capacity. The change itself never refills, and debt stays debt. `phase`
/// is where windows begin, as for [`Bucket::absent`].
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
    let scaled = i128::from(value).saturating_mul(i128::from(new.token()));
    let scaled = scaled.checked_div_euclid(i128::from(old.token())).unwrap_or(0);
    // Debt beyond what can be counted stays as deep as can be, whatever `max_reserved` says now.
    let clamped = scaled.clamp(i128::from(new.deepest()), i128::from(new.capacity()));
    let value = i64::try_from(clamped).unwrap_or(0);
    // New windows begin where the new numbers say, those of the same numbers where they did; what the old
    // ones have gained is in the value already.
    let ts = new.absent(now.max(ts), phase).ts;
    State { value, ts }
}
