//! The message about a cost that can never fit: what the limit can grant, and the way out.

use std::fmt::{self, Write};
use std::time::Duration;

use super::Limit;
use crate::algebra::{Terms, Units};

pub(super) fn explain(limit: &Limit, cost: u64, terms: Terms, f: &mut dyn Write) -> fmt::Result {
    write!(f, "cost of {cost} can never fit limit `{}` (", limit.name())?;
    match (only_queues(limit, terms), limit.is_in_shards()) {
        (true, _) => f.write_str(ONLY_QUEUES),
        (false, true) => explain_shards(limit, terms, f),
        (false, false) => explain_bucket(limit, terms, f),
    }?;
    f.write_str(")")
}

/// What is wrong with a cost that the limit can never grant on these terms; `None` if it can, or if
/// it is to grant nothing.
#[must_use]
pub fn explain_cost(limit: &Limit, cost: u64, terms: Terms) -> Option<String> {
    // A quota that grants nothing is meant to.
    let is_mistake = limit.is_too_large(cost, terms) && !limit.quota().is_none();
    let mut text = String::new();
    (is_mistake && explain(limit, cost, terms, &mut text).is_ok()).then_some(text)
}

/// Whether a limit saves no tokens, so that it refuses all work that does not wait.
fn only_queues(limit: &Limit, terms: Terms) -> bool {
    limit.quota().get_capacity() == 0 && matches!(DebtBound::new(limit, terms), DebtBound::None)
}

const ONLY_QUEUES: &str = "its capacity is 0, so each request has to wait for its tokens: use \
                           `queue` on the layer or `reserve` on the call, or raise its capacity";

/// What a limit of one bucket can grant on these terms, and the way out.
fn explain_bucket(limit: &Limit, terms: Terms, f: &mut dyn Write) -> fmt::Result {
    write!(f, "it holds at most {}", limit.quota().get_capacity())?;
    match DebtBound::new(limit, terms) {
        DebtBound::None => f.write_str(": ask for less, or raise its capacity"),
        DebtBound::Tokens(most) => {
            write!(f, " and reserves at most {}", limit.bucket().tokens(most))?;
            if terms.max_wait() < u64::MAX {
                write!(f, ", for at most {:?}", longest(terms))?;
            }
            f.write_str(": ask for less, wait for longer, or raise these")
        }
        DebtBound::Time => {
            write!(f, " and reserves for at most {:?}", longest(terms))?;
            f.write_str(": ask for less, wait for longer, or raise its capacity")
        }
    }
}

/// The same for a limit in shards. A request gets two of them.
fn explain_shards(limit: &Limit, terms: Terms, f: &mut dyn Write) -> fmt::Result {
    let (bucket, quota) = (limit.bucket(), limit.quota());
    let each_and_both =
        |units: Units| (bucket.tokens(units), bucket.tokens(units.saturating_mul(2)));
    let (each, both) = each_and_both(bucket.capacity());
    match quota.get_shards() {
        2 => write!(f, "its 2 shards of {each} tokens hold {both} together")?,
        count => {
            write!(f, "a request takes from at most two of its {count} shards of {each} tokens")?;
            write!(f, ", {both} together")?;
        }
    }
    let debt = DebtBound::new(limit, terms);
    let reserve = if quota.get_shards() == 2 { "reserve" } else { "reserves" };
    match debt {
        DebtBound::None => {}
        DebtBound::Tokens(most) => {
            let (each, both) = each_and_both(most);
            write!(f, ", and {reserve} at most {each} of each, {both} together")?;
            if terms.max_wait() < u64::MAX {
                write!(f, ", for at most {:?}", longest(terms))?;
            }
        }
        DebtBound::Time => write!(f, ", and {reserve} for at most {:?}", longest(terms))?,
    }
    f.write_str(": ask for less, ")?;
    if !matches!(debt, DebtBound::None) && terms.max_wait() < u64::MAX {
        f.write_str("wait for longer, ")?;
    }
    if quota.get_shards() > 2 {
        f.write_str("use fewer shards, ")?;
    }
    if matches!(debt, DebtBound::Tokens(_)) {
        f.write_str("raise max_reserved, ")?;
    }
    // If the user has set no capacity, it is the rate.
    f.write_str(match quota.get_capacity() == quota.rate() {
        true => "or raise rate and period together",
        false => "or raise its capacity",
    })
}

const fn longest(terms: Terms) -> Duration {
    Duration::from_micros(terms.max_wait())
}

/// What bounds the debt of a reservation.
#[derive(Clone, Copy)]
enum DebtBound {
    None,
    Tokens(Units),
    /// Only the longest wait does.
    Time,
}

impl DebtBound {
    fn new(limit: &Limit, terms: Terms) -> Self {
        match limit.quota().get_max_reserved() {
            _ if terms.floor() >= 0 => Self::None,
            None if terms.max_wait() < u64::MAX => Self::Time,
            _ => Self::Tokens(terms.floor().saturating_neg()),
        }
    }
}
