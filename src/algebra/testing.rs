//! For tests: checking a record of what ran against the bound that every limit promises.

use super::bucket::Bucket;
use crate::clock::Timestamp;
use crate::quota::{Quota, QuotaError};

/// Says in words where a record of work that ran violates a quota's bound first; `None` if nowhere.
///
/// The bound: in every window of time, the tokens of the work that ran in it are at most the
/// capacity (or the largest single cost, if that is more), plus what the quota gains in a time as
/// long, plus one step's gain. `runs` holds the instant and the cost of each piece of work, in any
/// order.
///
/// The run time is quadratic in the number of runs.
///
/// # Errors
///
/// If the quota contradicts itself or does not fit.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::check_history;
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let quota = Quota::token_bucket(10, SECOND);
/// let at = |millis: i64| Timestamp::from_micros(millis * 1_000);
///
/// assert_eq!(check_history(&quota, &[(at(0), 10), (at(500), 5), (at(600), 1)])?, None);
///
/// let violation = check_history(&quota, &[(at(0), 10), (at(500), 5), (at(550), 1)])?.unwrap();
/// assert_eq!(
///     violation,
///     "work of 16 tokens ran within 550ms from 1970-01-01T00:00:00Z on, where 15.50001 are the bound"
/// );
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
pub fn check_history(
    quota: &Quota,
    runs: &[(Timestamp, u64)],
) -> Result<Option<String>, QuotaError> {
    check_history_with_returns(quota, runs, &[])
}

/// As [`check_history`], for a record in which tokens came back: work cost less than it had paid,
/// or a request left that had its tokens already.
///
/// The bound is larger by the tokens that came back within the window. `returns` holds the instant
/// and the tokens of each, in any order.
///
/// # Errors
///
/// If the quota contradicts itself or does not fit.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::check_history_with_returns;
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let quota = Quota::token_bucket(1, SECOND).capacity(5);
/// let start = Timestamp::UNIX_EPOCH;
/// let runs = [(start, 5), (start + SECOND, 4)];
/// assert_eq!(check_history_with_returns(&quota, &runs, &[(start, 3)])?, None);
/// assert!(check_history_with_returns(&quota, &runs, &[])?.is_some());
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
pub fn check_history_with_returns(
    quota: &Quota,
    runs: &[(Timestamp, u64)],
    returns: &[(Timestamp, u64)],
) -> Result<Option<String>, QuotaError> {
    let bucket = Bucket::new(quota)?;
    let (mut runs, mut returns) = (runs.to_vec(), returns.to_vec());
    runs.sort_unstable();
    returns.sort_unstable();
    let mut starts = runs.as_slice();
    while let [(from, _), rest @ ..] = starts {
        if let Some(violation) = first_violation(&bucket, *from, starts, &returns) {
            return Ok(Some(violation));
        }
        starts = rest;
    }
    Ok(None)
}

/// The shortest window that starts with the first of `runs`, which are sorted, and is too full.
fn first_violation(
    bucket: &Bucket,
    from: Timestamp,
    runs: &[(Timestamp, u64)],
    returns: &[(Timestamp, u64)],
) -> Option<String> {
    let (mut used, mut largest, mut returned) = (0_u128, 0_u128, 0_u128);
    let token = u128::from(bucket.token());
    let mut returns = returns.iter().skip_while(|(at, _)| *at < from).peekable();
    let capacity = u128::from(bucket.capacity().unsigned_abs());
    for &(to, cost) in runs {
        let units = u128::from(cost).saturating_mul(token);
        used = used.saturating_add(units);
        largest = largest.max(units);
        let steps = match bucket.calendar() {
            Some(calendar) => calendar.count(from, to),
            None => to.micros_since(from).checked_div(bucket.step())?,
        };
        let steps = u128::from(steps);
        let gain = steps.saturating_add(1).saturating_mul(u128::from(bucket.gain()));
        while let Some((_, tokens)) = returns.next_if(|(at, _)| *at <= to) {
            returned = returned.saturating_add(u128::from(*tokens).saturating_mul(token));
        }
        let bound = capacity.max(largest).saturating_add(gain).saturating_add(returned);
        if used > bound {
            let tokens = |units| bucket.tokens(i64::try_from(units).unwrap_or(i64::MAX));
            let (ran, bound, within) = (tokens(used), tokens(bound), to.since(from));
            return Some(format!(
                "work of {ran} tokens ran within {within:?} from {from} on, where {bound} are the bound"
            ));
        }
    }
    None
}
