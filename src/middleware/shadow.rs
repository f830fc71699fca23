//! Charges rules that decide and log, but refuse nothing.

use std::slice;
use std::sync::Arc;
use std::vec;

use super::action::{Action, EventualAction};
use super::audience::{limits, tell};
use super::ledger::RequestLedger;
use super::plan::Plan;
use super::planned_rule::{PlannedRule, RuleLimit};
use crate::algebra::Verdict;
use crate::backend::{Answer, Applied, BackendError};
use crate::limiter::{CompleteAnswer, DecisionSource, Demand, Mode, Outcome, Report, Undecided};

type Shadow = Demand<RuleLimit<'static>>;

const SHADOW: DecisionSource = DecisionSource::Shadow;

/// Charges the shadow rules for a request that is not rejected, each on its own. They come after
/// the enforced rules, so that those decide as they would without shadows.
pub(super) fn charge_after<'p>(
    plan: &Arc<Plan>,
    action: EventualAction<'p>,
    shadows: Vec<Shadow>,
) -> EventualAction<'p> {
    match action {
        EventualAction::Ready(Action::Reject(rejection)) => {
            EventualAction::Ready(Action::Reject(rejection))
        }
        EventualAction::Ready(Action::Run(on_response)) => {
            match charge_now(plan, on_response.ledger(), shadows) {
                None => EventualAction::Ready(Action::Run(on_response)),
                Some(rest) => rest.into_action(plan, Action::Run(on_response)),
            }
        }
        EventualAction::Ready(Action::Queue(slot)) => {
            match charge_now(plan, slot.ledger.as_deref(), shadows) {
                None => EventualAction::Ready(Action::Queue(slot)),
                Some(rest) => rest.into_action(plan, Action::Queue(slot)),
            }
        }
        EventualAction::Pending(pending) => {
            let plan = Arc::clone(plan);
            EventualAction::Pending(Box::pin(async move {
                // A request that is dropped here, or at the next `await`, charges no further
                // shadows. Its action is dropped with it, and settles or gives up what was taken.
                let action = pending.await;
                if !matches!(action, Action::Reject(_)) {
                    charge_later(&plan, action.ledger(), shadows.into_iter()).await;
                }
                action
            }))
        }
    }
}

/// The shadows that the store has not decided at once: one with its pending answer, and the rest,
/// which are not sent yet.
struct PendingShadow {
    shadow: Shadow,
    answer: Answer<Applied>,
    rest: vec::IntoIter<Shadow>,
}

impl PendingShadow {
    fn into_action<'p>(self, plan: &Arc<Plan>, action: Action<'static>) -> EventualAction<'p> {
        let (plan, Self { shadow, answer, rest }) = (Arc::clone(plan), self);
        EventualAction::Pending(Box::pin(async move {
            record(&plan, action.ledger(), shadow, answer.wait().await);
            charge_later(&plan, action.ledger(), rest).await;
            action
        }))
    }
}

/// Charges shadows as long as the store answers at once.
fn charge_now(
    plan: &Plan,
    ledger: Option<&RequestLedger>,
    shadows: Vec<Shadow>,
) -> Option<PendingShadow> {
    let mut rest = shadows.into_iter();
    // With a store that answers at once, as in memory, no future is made for the shadows.
    while let Some(mut shadow) = rest.next() {
        match charge(plan, ledger, &mut shadow) {
            None => {}
            Some(Answer::Ready(answer)) => record(plan, ledger, shadow, answer),
            Some(answer) => return Some(PendingShadow { shadow, answer, rest }),
        }
    }
    None
}

async fn charge_later(plan: &Plan, ledger: Option<&RequestLedger>, shadows: vec::IntoIter<Shadow>) {
    for mut shadow in shadows {
        if let Some(answer) = charge(plan, ledger, &mut shadow) {
            record(plan, ledger, shadow, answer.wait().await);
        }
    }
}

/// Submits the demand of a shadow; `None`, with a line in the log, if its cost can never fit or its
/// limit grants nothing.
fn charge(
    plan: &Plan,
    ledger: Option<&RequestLedger>,
    shadow: &mut Shadow,
) -> Option<Answer<Applied>> {
    let planned = plan.rule_at(shadow.limit.rule)?;
    let answer = plan.limiter.submit(slice::from_mut(shadow), Mode::Take, Mode::Take);
    let answer = answer.inspect_err(|error| {
        planned.log.would_refuse_unasked(error);
        tell::<true>(plan, || Report::failed(SHADOW, limits(slice::from_ref(shadow)), error));
        if let Some(ledger) = ledger {
            ledger.add_refusals(shadow.limit.rule, error);
        }
    });
    answer.map(|answer| plan.limiter.timed(answer)).ok()
}

fn record(
    plan: &Plan,
    ledger: Option<&RequestLedger>,
    shadow: Shadow,
    answer: Result<Applied, BackendError>,
) {
    let Some(PlannedRule { log, .. }) = plan.rule_at(shadow.limit.rule) else { return };
    match answer.and_then(|applied| CompleteAnswer::new(slice::from_ref(&shadow), applied)) {
        Ok(outcome) => {
            let denied = (outcome.verdict() == Verdict::Refused).then_some(Outcome::Refused);
            let shadows = slice::from_ref(&shadow);
            tell::<true>(plan, || Report::answered(SHADOW, shadows, &outcome, denied));
            plan.limiter.store_answered_shadow(shadow.limit(), outcome.applied());
            if outcome.verdict() == Verdict::Refused {
                log.would_refuse(shadow.limit(), outcome.wait());
            }
            if let Some(ledger) = ledger {
                // Also a refusal: the handler can see it, and its bucket can be reset.
                ledger.add_shadow(&shadow, &outcome);
            }
        }
        // The request passes, whatever `on_failure` the layer has.
        Err(error) => {
            plan.limiter.store_failed(shadow.limit(), &error, Undecided::Shadow);
            let shadows = slice::from_ref(&shadow);
            tell::<true>(plan, || Report::alike(SHADOW, limits(shadows), Outcome::Uncounted));
        }
    }
}
