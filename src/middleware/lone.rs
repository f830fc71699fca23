//! The fast path of a decision, which most requests take: the only rule of the layer takes tokens
//! from one bucket in the memory of this process, so no list is needed.

use std::slice;
use std::sync::Arc;

use super::action::RenderedAction;
use super::advertise::on_lone_response;
use super::decide::{decide_one, on_admission};
use super::plan::Plan;
use super::reject::{TOO_MANY, render_lone, render_refusal};
use crate::algebra::{Terms, Verdict};
use crate::backend::{Applied, Charge, Memory, Reading};
use crate::key::{Extracted, Head};
use crate::limiter::{CompleteAnswer, Level, Limit, Observers, Report, units_of};

/// Decides about a request by the first rule, which is the only one of the layer.
// Not inlined, so it is compiled once and not for each service. Most responses need only the
// reading of the bucket; a demand and an outcome are made for the others alone.
#[inline(never)]
pub(super) fn decide(plan: &Arc<Plan>, memory: &Memory, head: &Head<'_>) -> RenderedAction {
    let planned = &plan.first;
    let key = match planned.extract(head) {
        Ok(Extracted::Key(key)) => key,
        keyless => {
            return decide_one(
                plan,
                head,
                planned.demand_without_key(&plan.limiter, head, keyless, 0),
            );
        }
    };
    let Some(choice) = planned.choose(&plan.limiter, head) else {
        return decide_one(plan, head, Ok(None));
    };
    let (limit, explicit_cost) = (choice.shared(), planned.cost(head));
    let cost = explicit_cost.unwrap_or(1);
    let (false, Ok(units)) = (limit.is_in_shards(), units_of(limit, cost, Terms::AT_ONCE)) else {
        return decide_one(plan, head, Ok(Some(choice.demand(key, explicit_cost, 0))));
    };
    let jitter = || plan.limiter.random().up_to(plan.settings.jitter);
    let charge = || Charge::take(limit.bucket_of(&key), limit.bucket(), units);
    let applied = match memory.charge(&charge()) {
        Ok((at, reading)) => {
            tell(plan, limit, cost, &reading);
            let level = || Level::new(limit, slice::from_ref(&reading), cost, at);
            let action = match reading.verdict() {
                Verdict::Admitted => on_lone_response(plan, limit, level).map(RenderedAction::Run),
                _ => {
                    let after = || reading.wait().saturating_add(jitter());
                    render_lone(plan, limit, &level(), after, head).map(RenderedAction::Respond)
                }
            };
            if let Some(action) = action {
                return action;
            }
            Applied::one(at, reading)
        }
        Err(unknown) => {
            let applied = unknown.charge(&charge());
            applied.readings().iter().for_each(|reading| tell(plan, limit, cost, reading));
            applied
        }
    };
    let (demands, outcome) =
        ([choice.demand(key, explicit_cost, 0)], CompleteAnswer::of_memory(applied));
    match outcome.verdict() {
        Verdict::Admitted => RenderedAction::Run(on_admission(plan, &demands, &outcome)),
        _ => RenderedAction::Respond(render_refusal(
            plan,
            &demands,
            &outcome,
            TOO_MANY,
            jitter(),
            head,
        )),
    }
}

/// Tells the observers what the bucket has answered.
#[inline(always)]
fn tell(plan: &Plan, limit: &Limit, cost: u64, reading: &Reading) {
    if let Some(observers) = plan.limiter.observers() {
        tell_each(observers, limit, cost, reading);
    }
}

#[cold]
#[inline(never)]
fn tell_each(observers: &Observers, limit: &Limit, cost: u64, reading: &Reading) {
    Report::of_reading(limit, cost, reading).tell(observers);
}
