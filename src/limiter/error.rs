//! Why there is no decision.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::Limit;
use crate::algebra::Terms;
use crate::backend::BackendError;

/// Nobody could decide, or the request can never fit.
///
/// With the feature `axum` it is a response as well: 503, or 429 without a time to come back.
///
/// # Examples
///
/// ```
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
/// let error = RateLimiter::in_memory().limit(&limit).cost(11).await.unwrap_err();
/// assert!(error.is_too_large());
/// assert_eq!(
///     error.to_string(),
///     "cost of 11 can never fit limit `exports` (it holds at most 10: ask for less, or raise its \
///      capacity)"
/// );
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

/// Boxed, as an error is rare and a limit is large.
#[derive(Clone, Debug)]
struct Inner {
    limit: Limit,
    problem: Problem,
}

#[derive(Clone, Debug)]
enum Problem {
    TooLarge { cost: u64, terms: Terms },
    Backend(BackendError),
}

impl Error {
    fn new(limit: &Limit, problem: Problem) -> Self {
        Self(Box::new(Inner { limit: limit.clone(), problem }))
    }

    pub(crate) fn too_large(limit: &Limit, cost: u64, terms: Terms) -> Self {
        Self::new(limit, Problem::TooLarge { cost, terms })
    }

    pub(crate) fn backend(limit: &Limit, error: BackendError) -> Self {
        Self::new(limit, Problem::Backend(error))
    }

    /// Whether the cost is more than the limit could ever grant, however long one waits.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(self.0.problem, Problem::TooLarge { .. })
    }

    /// Whether the backend failed or did not answer in time.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        !self.is_too_large()
    }

    /// Whether the backend did not answer in time; the tokens may be taken all the same.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(&self.0.problem, Problem::Backend(error) if error.is_timeout())
    }

    /// The limit that was asked.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.0.limit
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.limit.name();
        match &self.0.problem {
            Problem::TooLarge { cost, terms } => {
                let holds = self.0.limit.quota().tokens_at_most();
                write!(f, "cost of {cost} can never fit limit `{name}` (it holds at most {holds}")?;
                if terms.floor() >= 0 {
                    return f.write_str(": ask for less, or raise its capacity)");
                }
                let debt = self.0.limit.bucket().tokens(terms.floor().saturating_neg());
                write!(f, " and reserves at most {debt}")?;
                if terms.max_wait() < u64::MAX {
                    write!(f, ", for at most {:?}", Duration::from_micros(terms.max_wait()))?;
                }
                f.write_str(": ask for less, wait for longer, or raise these)")
            }
            Problem::Backend(_) => write!(f, "limit `{name}` could not be decided"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.problem {
            Problem::Backend(error) => Some(error),
            Problem::TooLarge { .. } => None,
        }
    }
}
