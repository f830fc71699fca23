//! What clients are told of the limits that they are held to.

use std::borrow::Borrow;

use ::http::HeaderValue;
use bytes::Bytes;

use super::rules::Rules;
use crate::backend::Applied;
use crate::http::{self, Told};
use crate::limiter::{Ask, Limit, Stand, Used, said};

/// `RateLimit-Policy` of several limits.
pub(super) fn policies<'l>(limits: impl Iterator<Item = &'l Limit>) -> Option<HeaderValue> {
    list(limits.filter_map(http::policy))
}

/// How all limits stand that were asked; `policy` if it is known.
pub(super) fn told<L: Borrow<Limit>>(
    policy: Option<&HeaderValue>,
    asks: &[Ask<L>],
    applied: &Applied,
) -> Told {
    let policy = match policy {
        Some(policy) => Some(policy.clone()),
        None => policies(asks.iter().map(Ask::limit)),
    };
    let members = said(asks, applied).filter_map(|(ask, readings)| {
        http::member(ask.limit(), &Stand::of(ask.limit(), readings), applied.now())
    });
    Told::new(policy, list(members))
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
    let policy = policies(stands.iter().map(|(part, _)| part.limit()));
    let members = stands.iter().map(|(part, stand)| http::member(part.limit(), stand, used.at));
    Told::new(policy, list(members.flatten()))
}

/// Values as the members of one list.
fn list(values: impl Iterator<Item = HeaderValue>) -> Option<HeaderValue> {
    let mut values = values;
    let first = values.next()?;
    let Some(second) = values.next() else { return Some(first) };
    let mut all = first.as_bytes().to_vec();
    for value in std::iter::once(second).chain(values) {
        all.extend_from_slice(b", ");
        all.extend_from_slice(value.as_bytes());
    }
    // All of them were header values, so their list is one.
    HeaderValue::from_maybe_shared(Bytes::from(all)).ok()
}
