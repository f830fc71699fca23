//! Prediction: what a limit would answer, computed from its quota alone.

use std::time::Duration;

use super::bucket::Bucket;
use super::charge::{Charged, Verdict, charge};
use super::state::State;
use super::terms::Terms;
use super::tokens::Tokens;
use crate::clock::Timestamp;
use crate::quota::{Kind, Quota, QuotaError};

/// What a limit would answer to a request, and what its bucket would hold then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calculation {
    bucket: Bucket,
    cost: u64,
    charged: Charged,
}

/// Computes what a quota would answer at `now` to a request of `cost` tokens; 0 only looks.
///
/// `stored` is the last known state of the bucket, or `None` if it was never used. The function
/// reads no clock and changes nothing, so clients and tests can use it. Without a stored state, a
/// fixed window that has no `start` begins at the epoch here, while a limiter gives every key a
/// phase of its own. A bucket that is still counted in faster numbers of the limit is for
/// [`charge_slower`](super::charge_slower).
///
/// # Errors
///
/// If the quota contradicts itself or does not fit.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::algebra::{Verdict, calculate};
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let quota = Quota::token_bucket(10, SECOND);
/// let now = Timestamp::from_micros(5_000_000);
///
/// let first = calculate(&quota, None, now, 10)?;
/// assert_eq!(first.verdict(), Verdict::Admitted);
/// assert_eq!(first.value().whole(), 0);
///
/// let next = calculate(&quota, Some(first.state()), now, 1)?;
/// assert_eq!(next.verdict(), Verdict::Refused);
/// assert_eq!(next.wait(), Duration::from_millis(100));
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
pub fn calculate(
    quota: &Quota,
    stored: Option<State>,
    now: Timestamp,
    cost: u64,
) -> Result<Calculation, QuotaError> {
    let bucket = Bucket::new(quota)?;
    let state = stored.unwrap_or_else(|| bucket.absent(now, Timestamp::UNIX_EPOCH));
    // A cost that cannot be counted leaves the bucket as deep in debt as can be.
    let units = bucket.units(cost).unwrap_or(i64::MAX);
    let charged = charge(&bucket, state, units, Terms::AT_ONCE, now);
    Ok(Calculation { bucket, cost, charged })
}

impl Calculation {
    /// The tokens left once the cost is taken; below zero if they are short.
    #[must_use]
    pub const fn value(&self) -> Tokens {
        self.bucket.tokens(self.charged.after().value)
    }

    /// The time at which [`value`](Self::value) is true: now, or the start of the window.
    #[must_use]
    pub const fn ts(&self) -> Timestamp {
        self.charged.after().ts
    }

    /// The state with the cost taken, whatever the verdict: value and time.
    #[must_use]
    pub const fn state(&self) -> State {
        self.charged.after()
    }

    /// How long until the cost can be taken without debt; zero if it can be now.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.charged.wait()
    }

    /// The start of the current window; `None` for a token bucket.
    #[must_use]
    pub const fn window_start(&self) -> Option<Timestamp> {
        match self.bucket.kind() {
            Kind::FixedWindow => Some(self.ts()),
            Kind::TokenBucket => None,
        }
    }

    /// The verdict on a request that does not wait.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.charged.verdict()
    }

    /// The verdict on a request that waits its turn.
    #[must_use]
    pub const fn reserving(&self) -> Verdict {
        match self.verdict() {
            Verdict::Refused if self.state().value >= self.bucket.floor() => Verdict::Reserved,
            verdict => verdict,
        }
    }

    /// Whether the cost is more than the limit could grant to a request that does not wait.
    #[must_use]
    pub fn too_large(&self) -> bool {
        self.bucket.too_large(self.cost, Terms::AT_ONCE)
    }

    /// Whether the cost is more than the limit could grant even after a wait.
    #[must_use]
    pub fn too_large_to_reserve(&self) -> bool {
        self.bucket.too_large(self.cost, Terms::reserving(self.bucket.floor()))
    }
}
