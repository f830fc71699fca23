//! What clients are told of the limits that they are held to.

use std::borrow::Borrow;

use http::HeaderValue;

use super::rules::Rules;
use crate::backend::Applied;
use crate::fields::{FieldSet, FieldSetBuilder, Member};
use crate::limiter::{Ask, Limit, Stand, Used, said};

/// How all limits stand that were asked.
#[inline]
pub(super) fn told<L: Borrow<Limit>>(
    rules: &Rules,
    asks: &[Ask<L>],
    applied: &Applied,
) -> FieldSet {
    let ready = rules.ready_for(asks);
    // Mostly there is one rule, and draft 11 alone.
    if let ([ask], Some(ready)) = (asks, ready)
        && rules.dialects().is_draft_11_alone()
    {
        return FieldSet::single(ready, member(rules, ask, applied));
    }
    let mut builder = FieldSetBuilder::new(rules.dialects(), ready);
    for (ask, readings) in said(asks, applied) {
        let limit = ask.limit();
        let stand = Stand::of(limit, readings);
        let (label, partition_key) = (rules.label(limit), rules.partition_of(&ask.key));
        let partition_key = partition_key.as_deref();
        let cost = ask.cost;
        let member = Member { policy: &label, limit, stand: &stand, cost, partition_key };
        builder.push(member, applied.now());
    }
    builder.build()
}

/// How the one limit of the rules stands, in draft 11.
#[inline]
pub(super) fn member<L: Borrow<Limit>>(
    rules: &Rules,
    ask: &Ask<L>,
    applied: &Applied,
) -> Option<HeaderValue> {
    let stand = Stand::of(ask.limit(), applied.readings());
    rules.first_told().label.single_member(ask.limit(), &stand, applied.now())
}

/// How those limits stand for which a request has waited, in the order of the rules.
pub(super) fn told_after(rules: &Rules, used: &Used) -> FieldSet {
    let mut stands = Vec::new();
    for (part, state) in used.stands() {
        // Of two shards of a limit, one will do.
        if stands.last().is_none_or(|(last, _): &(&_, _)| !part.is_of_same_limit(last)) {
            stands.push((part, Stand::after(state)));
        }
    }
    stands.sort_by_key(|(part, _)| rules.position(part.limit().name()));
    let mut builder = FieldSetBuilder::new(rules.dialects(), None);
    for (part, stand) in &stands {
        let limit = part.limit();
        let (label, partition_key) = (rules.label(limit), rules.partition_of(part.key()));
        let partition_key = partition_key.as_deref();
        // Nothing remains that has not been promised to somebody, whatever a request costs.
        let member = Member { policy: &label, limit, stand, cost: 1, partition_key };
        builder.push(member, used.at);
    }
    builder.build()
}
