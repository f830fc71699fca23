//! Why there is no decision.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::Limit;
use crate::algebra::{Terms, Units};
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
                write!(f, "cost of {cost} can never fit limit `{name}` (")?;
                match self.0.limit.is_in_shards() {
                    true => reach_of_shards(&self.0.limit, *terms, f),
                    false => reach(&self.0.limit, *terms, f),
                }?;
                f.write_str(")")
            }
            Problem::Backend(_) => write!(f, "limit `{name}` could not be decided"),
        }
    }
}

/// What a limit can grant on these terms, and the way out.
fn reach(limit: &Limit, terms: Terms, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "it holds at most {}", limit.quota().tokens_at_most())?;
    match Debt::of(limit, terms) {
        Debt::None => f.write_str(": ask for less, or raise its capacity"),
        Debt::Tokens(most) => {
            write!(f, " and reserves at most {}", limit.bucket().tokens(most))?;
            if terms.max_wait() < u64::MAX {
                write!(f, ", for at most {:?}", longest(terms))?;
            }
            f.write_str(": ask for less, wait for longer, or raise these")
        }
        Debt::Time => {
            write!(f, " and reserves for at most {:?}", longest(terms))?;
            f.write_str(": ask for less, wait for longer, or raise its capacity")
        }
    }
}

/// The same of a limit in shards, of which a request gets two.
fn reach_of_shards(limit: &Limit, terms: Terms, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (bucket, quota) = (limit.bucket(), limit.quota());
    let each_and_both =
        |units: Units| (bucket.tokens(units), bucket.tokens(units.saturating_mul(2)));
    let (each, both) = each_and_both(bucket.capacity());
    match quota.shard_count() {
        2 => write!(f, "its 2 shards of {each} tokens hold {both} together")?,
        count => {
            write!(f, "a request takes from at most two of its {count} shards of {each} tokens")?;
            write!(f, ", {both} together")?;
        }
    }
    let debt = Debt::of(limit, terms);
    let reserve = if quota.shard_count() == 2 { "reserve" } else { "reserves" };
    match debt {
        Debt::None => {}
        Debt::Tokens(most) => {
            let (each, both) = each_and_both(most);
            write!(f, ", and {reserve} at most {each} of each, {both} together")?;
            if terms.max_wait() < u64::MAX {
                write!(f, ", for at most {:?}", longest(terms))?;
            }
        }
        Debt::Time => write!(f, ", and {reserve} for at most {:?}", longest(terms))?,
    }
    f.write_str(": ask for less, ")?;
    if !matches!(debt, Debt::None) && terms.max_wait() < u64::MAX {
        f.write_str("wait for longer, ")?;
    }
    if quota.shard_count() > 2 {
        f.write_str("use fewer shards, ")?;
    }
    if matches!(debt, Debt::Tokens(_)) {
        f.write_str("raise max_reserved, ")?;
    }
    // Where no other capacity was said, it is the rate.
    f.write_str(match quota.tokens_at_most() == quota.rate() {
        true => "or raise rate and period together",
        false => "or raise its capacity",
    })
}

const fn longest(terms: Terms) -> Duration {
    Duration::from_micros(terms.max_wait())
}

/// What bounds the debt of a reservation.
#[derive(Clone, Copy)]
enum Debt {
    None,
    Tokens(Units),
    /// Nothing else does.
    Time,
}

impl Debt {
    fn of(limit: &Limit, terms: Terms) -> Self {
        match limit.quota().debt_at_most() {
            _ if terms.floor() >= 0 => Self::None,
            None if terms.max_wait() < u64::MAX => Self::Time,
            _ => Self::Tokens(terms.floor().saturating_neg()),
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
