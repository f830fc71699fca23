//! What clients are told of the limits that they are held to.

use http::HeaderValue;

use super::plan::Plan;
use super::planned_rule::Choice;
use crate::fields::{FieldSet, FieldSetBuilder, Member};
use crate::limiter::{Demand, Level, Outcome, UsedTurn};

/// The fields of a response to a request that these limits have decided about.
#[inline]
pub(super) fn field_set(
    plan: &Plan,
    demands: &[Demand<Choice<'_>>],
    outcome: &Outcome,
) -> FieldSet {
    let template = plan.template_for(demands.len());
    // Mostly there is one rule, and draft 11 alone.
    if let ([demand], Some(template)) = (demands, template)
        && plan.dialects().is_draft_11_alone()
    {
        return FieldSet::single(template, member(plan, demand, outcome));
    }
    let mut fields = FieldSetBuilder::new(plan.dialects(), template);
    for (demand, level) in outcome.levels(demands) {
        let limit = demand.limit();
        let (policy, partition_key) = (plan.policy(limit), plan.partition_of(&demand.key));
        let partition_key = partition_key.as_deref();
        fields.push(Member { policy: &policy, limit, level: &level, partition_key });
    }
    fields.build()
}

/// How the one limit of a plan stands, in draft 11.
#[inline]
pub(super) fn member(
    plan: &Plan,
    demand: &Demand<Choice<'_>>,
    outcome: &Outcome,
) -> Option<HeaderValue> {
    let level = outcome.level(demand);
    plan.first_advertised().policy.single_member(demand.limit(), &level)
}

/// The fields of a response to a request that has waited, in the order of the rules.
pub(super) fn fields_after_turn(plan: &Plan, turn: &UsedTurn) -> FieldSet {
    let mut levels = Vec::new();
    for (part, state) in turn.stands() {
        // Of two shards of a limit, one will do.
        if levels.last().is_none_or(|(last, _): &(&_, _)| !part.is_of_same_limit(last)) {
            // Nothing remains that has not been promised, whatever a request costs.
            levels.push((part, Level::admitted(state, 1, turn.at())));
        }
    }
    levels.sort_by_key(|(part, _)| plan.position(part.limit().name()));
    let mut fields = FieldSetBuilder::new(plan.dialects(), None);
    for (part, level) in &levels {
        let limit = part.limit();
        let (policy, partition_key) = (plan.policy(limit), plan.partition_of(part.key()));
        let partition_key = partition_key.as_deref();
        fields.push(Member { policy: &policy, limit, level, partition_key });
    }
    fields.build()
}
