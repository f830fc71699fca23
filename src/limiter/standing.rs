//! How a limit stands.

use std::time::Duration;

use super::Limit;
use crate::algebra::{State, Tokens};
use crate::backend::{Applied, Reading};
use crate::clock::Timestamp;
use crate::quota::Kind;

/// How a limit stands for a key: what its bucket held when it was asked.
///
/// # Examples
///
/// Predicting on another machine what the limiter would say, from what it last said:
///
/// ```
/// use tollgate::algebra::{Verdict, calculate};
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
/// let limiter = RateLimiter::in_memory();
/// let _ = limiter.limit(&limit).key("alice").cost(9).await?;
///
/// let standing = limiter.value(&limit).key("alice").await?;
/// let soon = standing.at() + HOUR / 10;
/// let next = calculate(limit.quota(), Some(standing.state()), soon, 2)?;
/// assert_eq!(next.verdict(), Verdict::Admitted);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Standing {
    limit: Limit,
    reading: Reading,
    now: Timestamp,
}

impl Standing {
    pub(super) const fn new(limit: Limit, reading: Reading, now: Timestamp) -> Self {
        Self { limit, reading, now }
    }

    pub(super) fn into_limit(self) -> Limit {
        self.limit
    }

    /// The first reading of an answer; `None` if it has none.
    pub(super) fn first(limit: &Limit, applied: &Applied) -> Option<Self> {
        let reading = *applied.readings().first()?;
        Some(Self { limit: limit.clone(), reading, now: applied.now() })
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The whole tokens that could be taken at once; zero in debt.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.tokens().whole()
    }

    /// The exact tokens, fraction and debt included.
    #[must_use]
    pub const fn tokens(&self) -> Tokens {
        self.limit.bucket().tokens(self.reading.state().value)
    }

    /// The state of the bucket, as [`calculate`](crate::algebra::calculate) takes it.
    #[must_use]
    pub const fn state(&self) -> State {
        self.reading.state()
    }

    /// The time at which this was so.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.now
    }

    /// How long until the bucket has what was asked of it; zero if it had.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.reading.wait()
    }

    /// How long until the bucket is full, if nothing is taken until then.
    #[must_use]
    pub fn full_after(&self) -> Duration {
        self.limit.bucket().full_at(self.reading.state()).since(self.now)
    }

    /// The start of the window; `None` for a token bucket.
    #[must_use]
    pub const fn window_start(&self) -> Option<Timestamp> {
        match self.limit.bucket().kind() {
            Kind::FixedWindow => Some(self.reading.state().ts),
            Kind::TokenBucket => None,
        }
    }

    /// What the bucket answered.
    #[must_use]
    pub const fn reading(&self) -> &Reading {
        &self.reading
    }
}
