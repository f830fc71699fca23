//! What clients are told of the limits that they are held to.

use std::borrow::Borrow;

use ::http::HeaderValue;

use super::rules::Rules;
use crate::backend::Applied;
use crate::http::{List, Told};
use crate::limiter::{Ask, Limit, Stand, Used, said};

/// How all limits stand that were asked.
pub(super) fn told<L: Borrow<Limit>>(rules: &Rules, asks: &[Ask<L>], applied: &Applied) -> Told {
    let mut members = List::default();
    for (ask, readings) in said(asks, applied) {
        let limit = ask.limit();
        let stand = Stand::of(limit, readings);
        rules.label(limit).member(limit, &stand, applied.now(), &mut members);
    }
    let policy = match rules.policy_of(asks) {
        Some(policy) => Some(policy.clone()),
        None => policies(rules, asks.iter().map(Ask::limit)),
    };
    Told::new(policy, members.value())
}

/// How those limits stand for which a request has waited, in the order of the rules.
pub(super) fn told_after(rules: &Rules, used: &Used) -> Told {
    let mut stands = Vec::new();
    for (part, state) in used.stands() {
        // Of two shards of a limit, one will do.
        if stands.last().is_none_or(|(last, _): &(&_, _)| !part.is_of_same_limit(last)) {
            stands.push((part, Stand::after(state)));
        }
    }
    stands.sort_by_key(|(part, _)| rules.position(part.limit().name()));
    let mut members = List::default();
    for (part, stand) in &stands {
        rules.label(part.limit()).member(part.limit(), stand, used.at, &mut members);
    }
    let policy = policies(rules, stands.iter().map(|(part, _)| part.limit()));
    Told::new(policy, members.value())
}

/// `RateLimit-Policy` of several limits.
fn policies<'l>(rules: &Rules, limits: impl Iterator<Item = &'l Limit>) -> Option<HeaderValue> {
    let mut list = List::default();
    limits.for_each(|limit| rules.label(limit).policy(&mut list));
    list.value()
}
