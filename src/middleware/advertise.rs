//! The header fields that show clients how their limits stand.

use super::plan::Plan;
use super::planned_rule::RuleLimit;
use crate::fields::{FieldSet, FieldSetBuilder, Member};
use crate::key::Key;
use crate::limiter::{CompleteAnswer, Demand, Level, Limit, QueueBucket, UsedTurn};

/// The fields of the response to a request with this outcome.
pub(super) fn field_set(
    plan: &Plan,
    demands: &[Demand<RuleLimit<'_>>],
    outcome: &CompleteAnswer,
) -> FieldSet {
    let mut fields = plan.fields();
    for (demand, level) in outcome.levels(demands) {
        push_member(&mut fields, plan, (demand.limit(), &demand.key), &level);
    }
    fields.build()
}

/// The limits of a request that has waited, and how they stand at its turn, in the order of the rules.
pub(super) fn levels_at_turn<'t>(plan: &Plan, turn: &'t UsedTurn) -> Vec<(&'t QueueBucket, Level)> {
    let mut levels = Vec::new();
    for (part, state) in turn.bucket_states() {
        // A limit in shards has several parts; the fields show the first.
        if levels.last().is_none_or(|(last, _): &(&_, _)| !part.is_of_same_limit(last)) {
            // The cost does not matter: waiters hold all tokens, so none remain.
            levels.push((part, Level::admitted(state, 1, turn.at())));
        }
    }
    levels.sort_by_key(|(part, _)| plan.position(part.limit().name()));
    levels
}

/// The fields of the response to a request that has waited.
pub(super) fn fields_after_turn(plan: &Plan, levels: &[(&QueueBucket, Level)]) -> FieldSet {
    let mut fields = plan.fields();
    for (part, level) in levels {
        push_member(&mut fields, plan, (part.limit(), part.key()), level);
    }
    fields.build()
}

/// Adds a limit with its key.
pub(super) fn push_member(
    fields: &mut FieldSetBuilder,
    plan: &Plan,
    (limit, key): (&Limit, &Key),
    level: &Level,
) {
    let (policy, partition_key) = (plan.policy(limit), plan.partition_key_of(key));
    let partition_key = partition_key.as_deref();
    fields.push(Member { policy: &policy, limit, level, partition_key });
}
