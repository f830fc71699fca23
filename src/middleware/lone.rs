//! The fast path of a decision, which most requests take: the only rule of the layer takes tokens
//! from one bucket in the memory of this process, so no list is needed.

use std::borrow::Cow;
use std::slice;
use std::sync::Arc;

use http::Response;

use super::body::RefusalText;
use super::decide::{Action, decide, decide_demanded, on_admission};
use super::on_response::OnResponse;
use super::plan::Plan;
use super::planned_rule::demand;
use super::reject::{TOO_MANY, render_lone, render_refusal};
use crate::algebra::{Terms, Units, Verdict};
use crate::backend::{Applied, Charge, Key, Memory, Reading, UnknownBucket};
use crate::clock::Timestamp;
use crate::key::{Extracted, Head, KeyError};
use crate::limiter::{CompleteAnswer, DecisionSource, Level, Limit, units_of};

/// Decides about a request: by the first rule, if that is the only one.
// Not inlined, so it is compiled once and not for each service. What few requests need has functions
// of its own, so that it does not lie between the instructions of all others.
#[inline(never)]
pub(super) fn decide_lone(plan: &Arc<Plan>, head: &Head<'_>) -> Action<Response<RefusalText>> {
    let (true, Some(memory)) = (plan.is_lone, plan.limiter.memory()) else {
        return decide(plan, head);
    };
    let planned = &plan.first;
    let extracted = planned.extract(head);
    // Borrowed: a key takes five words, which would be copied.
    let Ok(Extracted::Key(key)) = &extracted else { return decide_keyless(plan, head, extracted) };
    match plan.usual() {
        Some((limit, units)) => charge(plan, memory, head, (limit, key, planned.cost(head)), units),
        None => decide_unusual(plan, memory, head, key),
    }
}

#[inline(always)]
fn charge(
    plan: &Arc<Plan>,
    memory: &Memory,
    head: &Head<'_>,
    demanded: Known<'_>,
    units: Units,
) -> Action<Response<RefusalText>> {
    let (limit, key, _) = demanded;
    match memory.charge(&Charge::take(limit.bucket_of(key), limit.bucket(), units)) {
        Ok((at, reading)) => answer(plan, head, demanded, (at, reading), Applied::one),
        Err(unknown) => decide_unknown(plan, head, demanded, units, unknown),
    }
}

/// Whose limit or cost depends on the request, or whose limit is in shards or grants less.
#[inline(never)]
fn decide_unusual(
    plan: &Arc<Plan>,
    memory: &Memory,
    head: &Head<'_>,
    key: &Key,
) -> Action<Response<RefusalText>> {
    let planned = &plan.first;
    let Some(choice) = planned.choose(&plan.limiter, head) else {
        return decide_demanded(plan, head, Some(Ok(None)));
    };
    let (limit, explicit_cost) = (&*choice, planned.cost(head));
    let units = units_of(limit, explicit_cost.unwrap_or(1), Terms::AT_ONCE);
    match units {
        Ok(units) if !limit.is_in_shards() => {
            charge(plan, memory, head, (limit, key, explicit_cost), units)
        }
        _ => decide_demanded(
            plan,
            head,
            Some(Ok(Some(demand(choice, key.clone(), explicit_cost, 0)))),
        ),
    }
}

/// What the request demands: of which limit, by which key, and the cost if one was set.
type Known<'r> = (&'r Arc<Limit>, &'r Key, Option<u64>);

#[inline(always)]
fn answer(
    plan: &Arc<Plan>,
    head: &Head<'_>,
    demanded: Known<'_>,
    (at, reading): (Timestamp, Reading),
    applied: impl FnOnce(Timestamp, Reading) -> Applied,
) -> Action<Response<RefusalText>> {
    let (limit, _, cost) = demanded;
    if plan.is_observed {
        tell(plan, limit, cost, reading);
    }
    let level = || Level::admitted(reading.state(), cost.unwrap_or(1), at);
    if reading.verdict() == Verdict::Admitted
        && let Some(on_response) = OnResponse::of_lone(plan, limit, level)
    {
        return Action::Run(on_response);
    }
    act(plan, head, demanded, reading, applied(at, reading))
}

/// A request that is not admitted, or to whose response more is to be done.
#[cold]
#[inline(never)]
fn act(
    plan: &Arc<Plan>,
    head: &Head<'_>,
    (limit, key, explicit_cost): Known<'_>,
    reading: Reading,
    applied: Applied,
) -> Action<Response<RefusalText>> {
    let jitter = plan.limiter.state.random.up_to(plan.settings.jitter);
    if reading.verdict() != Verdict::Admitted {
        let cost = explicit_cost.unwrap_or(1);
        let level = Level::new(limit, slice::from_ref(&reading), cost, applied.now());
        let after = reading.wait().saturating_add(jitter);
        if let Some(response) = render_lone(plan, limit, &level, after, head) {
            return Action::Reject(response);
        }
    }
    let demands = [demand(Cow::Borrowed(limit), key.clone(), explicit_cost, 0)];
    let outcome = CompleteAnswer::of_memory(applied);
    match outcome.verdict() {
        Verdict::Admitted => Action::Run(on_admission(plan, &demands, &outcome)),
        _ => Action::Reject(render_refusal(plan, &demands, &outcome, TOO_MANY, jitter, head)),
    }
}

/// A bucket that is new, or is counted in other numbers.
#[cold]
#[inline(never)]
fn decide_unknown(
    plan: &Arc<Plan>,
    head: &Head<'_>,
    demanded: Known<'_>,
    units: Units,
    unknown: UnknownBucket<'_>,
) -> Action<Response<RefusalText>> {
    let (limit, key, _) = demanded;
    let (at, reading, remarks) =
        unknown.charge(&Charge::take(limit.bucket_of(key), limit.bucket(), units));
    let applied = |at, reading| Applied::one(at, reading).with_remarks(remarks);
    answer(plan, head, demanded, (at, reading), applied)
}

#[cold]
#[inline(never)]
fn decide_keyless(
    plan: &Arc<Plan>,
    head: &Head<'_>,
    extracted: Result<Extracted, KeyError>,
) -> Action<Response<RefusalText>> {
    decide_demanded(plan, head, Some(plan.first.demand(&plan.limiter, head, extracted, 0)))
}

/// Tells the observers what the bucket has answered.
#[cold]
#[inline(never)]
fn tell(plan: &Plan, limit: &Limit, cost: Option<u64>, reading: Reading) {
    if let Some(observers) = &plan.limiter.state.observers {
        let (source, cost) = (DecisionSource::Layer, cost.unwrap_or(1));
        observers.tell_reading(source, limit, cost, &reading);
    }
}
