//! Why a limit cannot be leased.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::terms::{LeaseTerms, Unleasable};
use tollgate::Quota;
use tollgate::algebra::Bucket;
use tollgate::quota::QuotaError;

/// Why a limit cannot be leased, with the arithmetic and the way out.
///
/// # Examples
///
/// ```
/// use tollgate::backend::Memory;
/// use tollgate_leasing::Leasing;
/// use tollgate::{Limit, Quota, SECOND};
///
/// let hot = Limit::new("hot", Quota::token_bucket(1_000_000, SECOND));
/// let error = Leasing::new(Memory::new()).try_lease(&hot).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "limit `hot` cannot be leased: it may reserve tokens without bound, as max_reserved is not \
///      set, and a lease cannot reserve, as nodes do not share their instants (set \
///      `.max_reserved(0)`)"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseError {
    limit: Box<str>,
    problem: LeaseProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LeaseProblem {
    Quota(QuotaError),
    Reserves(Option<u64>),
    Shards(u32),
    Windows,
    Numbers(Unleasable),
    Deadline { deadline: Duration, longest: Duration },
}

impl LeaseError {
    /// A deadline for questions that is too long for the lots of this limit.
    pub(super) fn deadline(limit: &str, deadline: Duration, longest: Duration) -> Self {
        Self { limit: limit.into(), problem: LeaseProblem::Deadline { deadline, longest } }
    }
}

/// The terms of a limit with these numbers.
///
/// # Errors
///
/// If it cannot be leased.
pub(super) fn check(limit: &str, quota: &Quota) -> Result<LeaseTerms, LeaseError> {
    let refuse = |problem| Err(LeaseError { limit: limit.into(), problem });
    if quota.get_max_reserved() != Some(0) {
        return refuse(LeaseProblem::Reserves(quota.get_max_reserved()));
    }
    if quota.get_shards() > 1 {
        return refuse(LeaseProblem::Shards(quota.get_shards()));
    }
    if quota.windows().is_some() || quota.is_from_first_use() {
        return refuse(LeaseProblem::Windows);
    }
    match Bucket::new(quota) {
        Err(error) => refuse(LeaseProblem::Quota(error)),
        Ok(bucket) => LeaseTerms::new(&bucket).or_else(|why| refuse(LeaseProblem::Numbers(why))),
    }
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit `{}` cannot be leased: ", self.limit)?;
        match &self.problem {
            LeaseProblem::Quota(error) => error.fmt(f),
            LeaseProblem::Reserves(most) => {
                match most {
                    Some(tokens) => write!(f, "it may reserve {tokens} tokens")?,
                    None => f.write_str(
                        "it may reserve tokens without bound, as max_reserved is not set",
                    )?,
                }
                f.write_str(
                    ", and a lease cannot reserve, as nodes do not share their instants (set \
                     `.max_reserved(0)`)",
                )
            }
            LeaseProblem::Shards(count) => write!(
                f,
                "it has {count} shards, which leasing replaces (leave `.shards({count})` out)"
            ),
            LeaseProblem::Windows => f.write_str(
                "its windows follow a calendar or the first use, so a node does not know when they \
                 end (use `fixed_window` alone, or do not lease this limit)",
            ),
            LeaseProblem::Numbers(why) => why.fmt(f),
            LeaseProblem::Deadline { deadline, longest } => write!(
                f,
                "its deadline of {deadline:?} is longer than {longest:?}, a quarter of the life of \
                 its lots (set a deadline of at most {longest:?}, or raise the capacity)"
            ),
        }
    }
}

impl Error for LeaseError {}
