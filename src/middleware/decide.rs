//! Decides about a request: collects what its rules demand, asks the limiter for it, and turns the
//! decision into an action.

use std::pin::Pin;
use std::sync::Arc;

use http::{Response, StatusCode};

use super::body::RefusalText;
use super::ledger::{RequestLedger, RunningLedger};
use super::on_response::OnResponse;
use super::plan::Plan;
use super::planned_rule::{Demanded, PlannedRule, RuleDemands, RuleLimit, Shadow, to_static};
use super::queued_call::{PendingTurn, counted_keys, enqueue};
use super::reject::{Refusal, Rejection, TOO_MANY, render};
use super::shadow;
use crate::fields::ForeignFields;
use crate::key::Head;
use crate::limiter::{
    Asked, Asking, CompleteAnswer, Decided, DecisionSource, Demand, Mode, Outcome,
};

/// The decision about a request, with the reason or the response if it is rejected.
pub(super) enum Action<R = Rejection<'static>> {
    Run(OnResponse),
    /// It waits for its turn, then runs.
    Queue(PendingTurn),
    Reject(R),
    /// The store answers later.
    Pending(PendingAction),
}

pub(super) type PendingAction = Pin<Box<dyn Future<Output = Action> + Send>>;

/// Decides about a request.
pub(super) fn decide(plan: &Arc<Plan>, head: &Head<'_>) -> Action<Response<RefusalText>> {
    decide_demanded(plan, head, None)
}

/// As [`decide`]. `first`: what the first rule demands, if that is known.
pub(super) fn decide_demanded<'p>(
    plan: &'p Arc<Plan>,
    head: &Head<'_>,
    first: Option<Demanded<'p>>,
) -> Action<Response<RefusalText>> {
    match decide_all(plan, head, first) {
        Action::Run(on_response) => Action::Run(on_response),
        Action::Queue(waiting) => Action::Queue(waiting),
        Action::Reject(rejection) => Action::Reject(render(plan, &rejection, head)),
        Action::Pending(pending) => Action::Pending(pending),
    }
}

fn decide_all<'p>(
    plan: &'p Arc<Plan>,
    head: &Head<'_>,
    mut first: Option<Demanded<'p>>,
) -> Action<Rejection<'p>> {
    if plan.limiter.state.is_off {
        return Action::Run(uncharged(plan));
    }
    // Shadows are charged after the enforced rules, so that those decide as they would without them.
    let (mut demands, mut shadows) = (RuleDemands::new(), Vec::new());
    for (position, planned) in plan.iter().enumerate() {
        if !planned.rule.applies_to(head, || plan.limiter.state.random.next()) {
            continue;
        }
        let demanded = first.take().unwrap_or_else(|| {
            planned.demand(&plan.limiter, head, planned.extract(head), position)
        });
        match demanded {
            Ok(Some(demand)) if planned.rule.enforces(demand.limit().name(), &demand.key) => {
                demands.push(demand);
            }
            Ok(Some(demand)) => shadows.push(demand.with_limit(demand.limit.to_static())),
            Ok(None) => tell_unasked(plan, planned, Outcome::Exempt),
            // The key decides whether the rule is enforced. A client must not get out of a partly
            // enforced rule by a missing or malformed key, so such a request is always rejected.
            Err(failure) if planned.rule.is_enforced_on_some() => {
                tell_unasked(plan, planned, Outcome::NoKey);
                return Action::Reject(Rejection::Failed(failure));
            }
            Err(_) => tell_unasked(plan, planned, Outcome::NoKey),
        }
    }
    match demands.is_empty() {
        true => run(plan, uncharged(plan), shadows),
        false => ask(plan, demands, shadows),
    }
}

/// Tells the observers of a request that a rule does not charge.
fn tell_unasked(plan: &Plan, planned: &PlannedRule, outcome: Outcome) {
    if let Some(observers) = &plan.limiter.state.observers {
        let is_enforced = planned.rule.is_enforced_on_some();
        let source = if is_enforced { DecisionSource::Layer } else { DecisionSource::Shadow };
        observers.tell_request(source, std::iter::once((&*planned.rule.limit, 0, outcome, None)));
    }
}

/// Asks the store, and makes an action of its answer, now or later.
fn ask<'p>(
    plan: &'p Arc<Plan>,
    mut demands: RuleDemands<'p>,
    shadows: Vec<Shadow>,
) -> Action<Rejection<'p>> {
    let (asking, status) = asking(plan, &demands);
    let pending = match plan.limiter.ask(&mut demands, asking) {
        Asked::Decided(decided) => return act(plan, (asking, status), demands, shadows, decided),
        Asked::Pending(pending) => pending,
    };
    let (plan, demands) = (Arc::clone(plan), to_static(&demands));
    Action::Pending(Box::pin(async move {
        let decided = plan.limiter.decided(&demands, asking, pending.await);
        act(&plan, (asking, status), demands, shadows, decided)
    }))
}

/// What becomes of a request by what was decided about it.
fn act<'p>(
    plan: &Arc<Plan>,
    (asking, status): (Asking, StatusCode),
    demands: RuleDemands<'p>,
    shadows: Vec<Shadow>,
    decided: Decided,
) -> Action<Rejection<'p>> {
    let jitter = || plan.limiter.state.random.up_to(plan.settings.jitter);
    match decided {
        Decided::Admitted(answer) => run(plan, on_admission(plan, &demands, &answer), shadows),
        Decided::Reserved(answer, ticket) => {
            match enqueue(plan, asking, jitter(), demands, shadows, answer, ticket) {
                Ok(turn) => Action::Queue(turn),
                Err(rejection) => Action::Reject(rejection),
            }
        }
        Decided::Refused { answer: outcome, could_wait } => {
            let status = if could_wait { status } else { TOO_MANY };
            let refusal = Refusal { demands, outcome, status, jitter: jitter() };
            match could_wait {
                // For want of a place in the queue, so it is not the limits that refuse it.
                true => Action::Reject(Rejection::Refused(refusal)),
                false => refuse(plan, refusal),
            }
        }
        Decided::TooLarge(error) => Action::Reject(Rejection::Unasked(error)),
        Decided::Uncounted => run(plan, uncharged(plan), shadows),
        Decided::Failed(error) => Action::Reject(Rejection::unavailable(&error)),
    }
}

/// Runs an admitted request once its shadow rules are charged.
fn run<R>(plan: &Arc<Plan>, on_response: OnResponse, shadows: Vec<Shadow>) -> Action<R> {
    match shadow::charge(plan, on_response.ledger(), shadows) {
        None => Action::Run(on_response),
        // A request that is dropped meanwhile charges no further shadows. Its action is dropped with
        // it, and settles or gives up what was taken.
        Some(rest) => Action::Pending(Box::pin(async move {
            rest.await;
            Action::Run(on_response)
        })),
    }
}

/// Rejects a request that limits have refused, once that is counted.
fn refuse<'p>(plan: &Arc<Plan>, refusal: Refusal<'p>) -> Action<Rejection<'p>> {
    if !plan.counts_refusals || refusal.counted(plan).next().is_none() {
        return Action::Reject(Rejection::Refused(refusal));
    }
    let (plan, refusal) = (Arc::clone(plan), refusal.into_static());
    Action::Pending(Box::pin(async move { Action::Reject(refusal.count(plan).await) }))
}

/// What a layer asks for a request, and the status of a refusal for want of a place in the queue.
fn asking(plan: &Plan, demands: &[Demand<RuleLimit<'_>>]) -> (Asking, StatusCode) {
    let asking = Asking::take(DecisionSource::Layer, plan.settings.on_failure);
    let asking = Asking { refunds_dropped: plan.settings.refunds_dropped, ..asking };
    let Some(queue) = plan.settings.queue else { return (asking, TOO_MANY) };
    // If the queue has no room, the request reserves no slot: it could not keep it.
    // Not counted yet: the store may admit the request at once. `enqueue` counts it.
    let checked = plan.waiters.check(&queue, || counted_keys(plan, demands));
    let drain = plan.limiter.state.queues.time_to_drain();
    let longest = plan.mode(demands.iter().any(Demand::is_in_flight));
    let (mode, status) = match (checked, drain) {
        (Ok(()), None) => (longest, TOO_MANY),
        // The server shuts down, so the refusal is not due to the client.
        (Ok(()), Some(end)) => (Mode::Reserve(end.min(queue.max_wait)), UNAVAILABLE),
        (Err(_), Some(_)) => (Mode::Take, UNAVAILABLE),
        (Err(status), None) => (Mode::Take, status),
    };
    (Asking { mode, longest, ..asking }, status)
}

/// What to do with the response of an admitted request.
pub(super) fn on_admission(
    plan: &Arc<Plan>,
    demands: &[Demand<RuleLimit<'_>>],
    outcome: &CompleteAnswer,
) -> OnResponse {
    if let [demand] = demands
        && let Some(lone) = OnResponse::of_lone(plan, demand.limit(), || outcome.level(demand))
    {
        return lone;
    }
    let fields = plan.sends_fields.then(|| plan.fields_by(demands, outcome));
    let ledger = RequestLedger::from_outcome(plan, demands, outcome);
    OnResponse::new(fields, None, ledger.map(RunningLedger))
}

/// What to do with the response of a request that was not charged.
fn uncharged(plan: &Arc<Plan>) -> OnResponse {
    let ledger = plan.tracks_charges.then(|| Arc::new(RequestLedger::new(plan)));
    let removes = plan.settings.foreign_fields == ForeignFields::Remove;
    let fields = removes.then(|| plan.fields_of(std::iter::empty()));
    OnResponse::new(fields, None, ledger.map(RunningLedger))
}

const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
