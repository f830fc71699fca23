//! Counts the refusals of rules that block keys after some of them.

use std::sync::Arc;

use super::plan::Plan;
use super::planned_rule::RuleLimit;
use super::reject::{Refusal, Rejection};
use crate::backend::Answer;
use crate::limiter::{BlockAfter, Demand, DetachOnDrop, refusals_to_count};

/// Counts a request that was refused, and returns its rejection: with the time of the block, if that
/// blocks a key.
///
/// The count completes even if the client disconnects meanwhile.
pub(super) async fn reject(plan: Arc<Plan>, refusal: Refusal<'static>) -> Rejection<'static> {
    let counting = async move {
        let mut has_blocked = false;
        for (demand, after) in counted(&plan, &refusal) {
            let (limit, key) = (demand.limit(), &demand.key);
            has_blocked |= plan.limiter.count_refusal(limit, key, after).await;
        }
        let mut refusal = refusal;
        if has_blocked && let Ok(outcome) = plan.limiter.look(&refusal.demands).await {
            refusal.outcome = outcome;
        }
        Ok(Rejection::Refused(refusal))
    };
    // `counting` never fails.
    let counted = DetachOnDrop::new(Answer::pending(counting)).await;
    counted.unwrap_or_else(|error| Rejection::unavailable(&error))
}

/// What limits have refused whose rules count refusals.
pub(super) fn counted<'x>(
    plan: &'x Plan,
    refusal: &'x Refusal<'_>,
) -> impl Iterator<Item = (&'x Demand<RuleLimit<'x>>, &'x BlockAfter)> {
    refusals_to_count(&refusal.demands, &refusal.outcome).filter_map(|demand| {
        Some((demand, plan.rule_at(demand.limit.rule)?.rule.block_after.as_deref()?))
    })
}
