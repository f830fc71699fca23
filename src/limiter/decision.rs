//! What the limiter decided.

use std::time::Duration;

use super::{Limit, RateLimited};
use crate::algebra::{State, Tokens, Verdict};
use crate::backend::{Applied, Reading};
use crate::clock::Timestamp;
use crate::quota::Kind;

/// Whether the work may run.
///
/// A refusal is an answer like any other, not an error. Where a handler wants to leave by `?`,
/// [`into_result`](Self::into_result) makes it one.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "work that was refused must not run"]
pub enum Decision {
    /// The tokens were there: the work may run now.
    Admitted(Permit),
    /// The tokens are not there, and nothing was taken.
    Refused(Refusal),
}

impl Decision {
    pub(super) fn new(limit: &Limit, applied: Applied) -> Option<Self> {
        let verdict = applied.verdict();
        let standing = Standing::first(limit, applied)?;
        Some(match verdict {
            Verdict::Admitted | Verdict::Reserved => Self::Admitted(Permit { standing }),
            Verdict::Refused => Self::Refused(Refusal { standing }),
        })
    }

    /// Whether the work may run now.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// When a refused request may come back; `None` if it was admitted.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Admitted(_) => None,
            Self::Refused(refusal) => Some(refusal.retry_after()),
        }
    }

    /// The permit, or the refusal as an error to leave a handler with.
    ///
    /// # Errors
    ///
    /// If the request was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limit, MINUTE, Quota, RateLimited, RateLimiter};
    ///
    /// const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(10, MINUTE));
    ///
    /// async fn send(limiter: &RateLimiter, user: &str) -> Result<&'static str, RateLimited> {
    ///     limiter.limit(&MESSAGES).key(user).await?.into_result()?;
    ///     Ok("sent")
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # assert!(send(&RateLimiter::in_memory(), "alice").await.is_ok());
    /// # }
    /// ```
    pub fn into_result(self) -> Result<Permit, RateLimited> {
        match self {
            Self::Admitted(permit) => Ok(permit),
            Self::Refused(refusal) => Err(refusal.into()),
        }
    }
}

/// Leave to run the work now.
///
/// Its tokens are taken, unless it comes from [`check`](super::RateLimiter::check).
#[derive(Debug)]
pub struct Permit {
    standing: Standing,
}

impl Permit {
    /// The whole tokens that are left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.standing.remaining()
    }

    /// How the limit stands after this.
    #[must_use]
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }
}

/// The tokens were not there; nothing was taken.
///
/// # Examples
///
/// ```
/// use tollgate::{Decision, Limit, MINUTE, Quota, RateLimiter, SECOND};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limit = Limit::new("calls", Quota::token_bucket(6, MINUTE).capacity(1));
/// let limiter = RateLimiter::in_memory();
/// let _ = limiter.limit(&limit).await?;
///
/// let Decision::Refused(refusal) = limiter.limit(&limit).await? else { unreachable!() };
/// assert!(refusal.retry_after() <= 10 * SECOND);
/// assert_eq!(refusal.limits()[0].limit().name(), "calls");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Refusal {
    standing: Standing,
}

impl Refusal {
    /// The smallest wait after which the same request is admitted, if nobody else comes first.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.standing.wait()
    }

    /// How each limit stands that refused.
    #[must_use]
    pub const fn limits(&self) -> &[Standing] {
        std::slice::from_ref(&self.standing)
    }
}

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
    /// The first reading of an answer; `None` if it has none.
    pub(super) fn first(limit: &Limit, applied: Applied) -> Option<Self> {
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
