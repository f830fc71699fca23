//! The header fields that show clients how their limits stand.

use super::plan::Plan;
use super::planned_rule::RuleLimit;
use crate::fields::{FieldSet, Member};
use crate::key::Key;
use crate::limiter::{CompleteAnswer, Demand, Level, Limit, QueueBucket, UsedTurn};

/// The fields of the response to a request with this outcome.
pub(super) fn field_set(
    plan: &Plan,
    demands: &[Demand<RuleLimit<'_>>],
    outcome: &CompleteAnswer,
) -> FieldSet {
    let levels = outcome.levels(demands);
    fields_of(plan, levels.map(|(demand, level)| (demand.limit(), &demand.key, level)))
}

/// The limits of a request that has waited, and how they stand at its turn, in the order of the rules.
pub(super) fn levels_at_turn<'t>(plan: &Plan, turn: &'t UsedTurn) -> Vec<(&'t QueueBucket, Level)> {
    let mut levels = Vec::new();
    for (part, state) in &turn.buckets {
        // A limit in shards has several parts; the fields show the first.
        if levels.last().is_none_or(|(last, _): &(&_, _)| !part.is_of_same_limit(last)) {
            // The cost does not matter: waiters hold all tokens, so none remain.
            levels.push((part, Level::admitted(*state, 1, turn.at)));
        }
    }
    levels.sort_by_key(|(part, _)| plan.position(part.limit().name()));
    levels
}

/// The fields that show these limits, each with its key.
pub(super) fn fields_of<'m>(
    plan: &Plan,
    members: impl Iterator<Item = (&'m Limit, &'m Key, Level)>,
) -> FieldSet {
    let mut fields = plan.fields();
    for (limit, key, level) in members {
        let (policy, partition_key) = (plan.policy(limit), plan.partition_key_of(key));
        let (level, partition_key) = (&level, partition_key.as_deref());
        fields.push(Member { policy: &policy, limit, level, partition_key });
    }
    fields.build()
}
