//! Tells the observers of a layer's limiter what its rules decide.

use std::sync::Arc;
use std::time::Duration;

use super::plan::Plan;
use super::planned_rule::{PlannedRule, RuleLimit};
use crate::limiter::{CompleteAnswer, DecisionSource, Demand, Limit, Outcome, QueueStay, Report};

/// Tells the observers, if there are any.
///
/// The functions that decide are compiled once for layers with observers and once for layers
/// without, so those without do not ask at each step.
pub(super) fn tell<'r, const IS_OBSERVED: bool>(plan: &Plan, report: impl FnOnce() -> Report<'r>) {
    if IS_OBSERVED && let Some(observers) = plan.limiter.observers() {
        report().tell(observers);
    }
}

/// Tells of a request that a rule does not charge.
pub(super) fn tell_uncharged<const IS_OBSERVED: bool>(
    plan: &Plan,
    planned: &PlannedRule,
    outcome: Outcome,
) {
    let is_enforced = planned.rule.is_enforced_on_some();
    let source = if is_enforced { DecisionSource::Layer } else { DecisionSource::Shadow };
    tell::<IS_OBSERVED>(plan, || Report::unasked(source, &planned.rule.limit, outcome));
}

/// What the store has answered to a request, which was denied by the limits of the outcome `denied`,
/// if it was.
pub(super) fn answered<'r>(
    demands: &'r [Demand<RuleLimit<'_>>],
    answer: &'r CompleteAnswer,
    denied: Option<Outcome>,
) -> Report<'r> {
    Report::answered(DecisionSource::Layer, demands, answer, denied)
}

/// Tells that a request has joined the queue of a limit. Its slot is held already: an observer that
/// is slow must not delay the timer of the slot.
pub(super) fn join(
    plan: &Plan,
    demands: &[Demand<RuleLimit<'_>>],
    outcome: &CompleteAnswer,
    limit: &Arc<Limit>,
    promised: Duration,
) -> Option<QueueStay> {
    let observers = plan.limiter.observers()?;
    let stay = QueueStay::new(observers, limit, DecisionSource::Layer, promised);
    answered(demands, outcome, None).tell(observers);
    stay.join();
    Some(stay)
}

/// The limits that a request demands tokens of, each with its cost.
pub(super) fn limits<'d>(
    demands: &'d [Demand<RuleLimit<'_>>],
) -> impl Iterator<Item = (&'d Limit, u64)> {
    demands.iter().map(|demand| (demand.limit(), demand.cost))
}
