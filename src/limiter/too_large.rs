//! The message about a cost that can never fit: what the limit can grant, and the way out.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use super::Limit;
use crate::algebra::{Terms, Units};

pub(super) fn explain(limit: &Limit, cost: u64, terms: Terms, f: &mut dyn Write) -> fmt::Result {
    write!(f, "cost of {cost} can never fit limit `{}` (", limit.name())?;
    if limit.quota().get_capacity() == 0 && terms.floor() >= 0 {
        // It saves no tokens, so it refuses all work that does not wait.
        f.write_str(
            "its capacity is 0, so each request has to wait for its tokens: use `queue` on the \
             layer or `reserve` on the call, or raise its capacity",
        )?;
    } else if limit.is_in_shards() {
        explain_shards(limit, terms, f)?;
    } else {
        explain_bucket(limit, terms, f)?;
    }
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

/// What a limit of one bucket can grant on these terms, and the way out.
fn explain_bucket(limit: &Limit, terms: Terms, f: &mut dyn Write) -> fmt::Result {
    write!(f, "it holds at most {}", limit.quota().get_capacity())?;
    let (most, wait) = debt_bounds(limit, terms);
    explain_debt(" and reserves", most.map(|most| limit.bucket().tokens(most)), wait, f)?;
    f.write_str(match (most, wait) {
        (None, None) => ": ask for less, or raise its capacity",
        (None, Some(_)) => ": ask for less, wait for longer, or raise its capacity",
        (Some(_), _) => ": ask for less, wait for longer, or raise these",
    })
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
    let (most, wait) = debt_bounds(limit, terms);
    let both = most.map(|most| {
        let (each, both) = each_and_both(most);
        format!("{each} of each, {both} together")
    });
    explain_debt(
        if quota.get_shards() == 2 { ", and reserve" } else { ", and reserves" },
        both,
        wait,
        f,
    )?;
    f.write_str(": ask for less, ")?;
    if wait.is_some() {
        f.write_str("wait for longer, ")?;
    }
    if quota.get_shards() > 2 {
        f.write_str("use fewer shards, ")?;
    }
    if most.is_some() {
        f.write_str("raise max_reserved, ")?;
    }
    // If the user has set no capacity, it is the rate.
    f.write_str(match quota.get_capacity() == quota.rate() {
        true => "or raise rate and period together",
        false => "or raise its capacity",
    })
}

/// What bounds the debt of a reservation: units, and the longest wait. Neither if there is none.
fn debt_bounds(limit: &Limit, terms: Terms) -> (Option<Units>, Option<Duration>) {
    if terms.floor() >= 0 {
        return (None, None);
    }
    let wait = Some(terms.max_wait()).filter(|&wait| wait < u64::MAX).map(Duration::from_micros);
    let is_by_time = limit.quota().get_max_reserved().is_none() && wait.is_some();
    ((!is_by_time).then(|| terms.floor().saturating_neg()), wait)
}

fn explain_debt(
    reserves: &str,
    most: Option<impl Display>,
    wait: Option<Duration>,
    f: &mut dyn Write,
) -> fmt::Result {
    match (most, wait) {
        (None, None) => Ok(()),
        (None, Some(wait)) => write!(f, "{reserves} for at most {wait:?}"),
        (Some(most), None) => write!(f, "{reserves} at most {most}"),
        (Some(most), Some(wait)) => write!(f, "{reserves} at most {most}, for at most {wait:?}"),
    }
}
