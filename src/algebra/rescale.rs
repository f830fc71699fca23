//! Converting a bucket when the numbers of its limit change.

use super::bucket::Bucket;
use super::state::State;
use crate::clock::Timestamp;

/// Returns what a bucket of `old` numbers holds when `new` ones take over at `now`.
///
/// The tokens that are left stay: the units are scaled by the ratio of the two tokens, rounded down,
/// and clamped to the new capacity. The change itself never refills, and debt stays debt. `phase`
/// is an instant at which a window starts, as for [`Bucket::absent`].
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
    // Debt beyond what can be counted is cut to the deepest that can, whatever `max_reserved` says.
    let clamped = scaled.clamp(i128::from(new.min_value()), i128::from(new.capacity()));
    let value = i64::try_from(clamped).unwrap_or(0);
    // New windows start where the new numbers say. What the old ones gained is in the value already.
    let ts = new.absent(now.max(ts), phase).ts;
    State { value, ts }
}
