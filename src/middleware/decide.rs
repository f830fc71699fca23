//! Decides about a request: collects what its rules demand, submits that to the store, and turns
//! the answer into an action.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::action::{
    Action, EventualAction, QueuedSlot, Refusal, Rejection, RenderedAction, RuleDemands, to_static,
};
use super::advertise::{field_set, on_lone_response};
use super::audience::{answered, join, limits, tell, tell_uncharged};
use super::ledger::RequestLedger;
use super::on_response::OnResponse;
use super::plan::Plan;
use super::planned_rule::RuleLimit;
use super::queue::{Queue, QueueRefusal};
use super::reject::{TOO_MANY, render};
use super::shadow;
use super::waiter_counter::KeyHashes;
use crate::algebra::Verdict;
use crate::backend::{Answer, Applied, BackendError};
use crate::clock::Timestamp;
use crate::key::Head;
#[cfg(feature = "memory")]
use crate::limiter::LineSlot;
use crate::limiter::OnFailure;
use crate::limiter::{
    CompleteAnswer, DecisionSource, Demand, DetachOnDrop, Grant, HeldSlot, Mode, Outcome,
    RateLimited, RateLimiter, Report, ReservedSlot, Undecided,
};

/// Decides about a request.
pub(super) fn decide(plan: &Arc<Plan>, head: &Head<'_>) -> RenderedAction {
    render_action(plan, head, decide_all(plan, head))
}

/// Decides about a request by what its only rule
/// [demands](super::planned_rule::PlannedRule::demand), in a layer without observers.
#[cfg(feature = "memory")]
pub(super) fn decide_one(
    plan: &Arc<Plan>,
    head: &Head<'_>,
    demand: Result<Option<Demand<RuleLimit<'_>>>, super::missing_key::NoKey>,
) -> RenderedAction {
    let action = match demand {
        Ok(Some(demand)) => submit::<false>(plan, RuleDemands::from_buf([demand])),
        Ok(None) => EventualAction::Ready(run_uncharged(plan)),
        Err(no_key) => EventualAction::Ready(Action::Reject(Rejection::NoKey(no_key))),
    };
    render_action(plan, head, action)
}

/// Renders the response to a request that is rejected at once.
fn render_action(plan: &Plan, head: &Head<'_>, action: EventualAction<'_>) -> RenderedAction {
    match action {
        EventualAction::Ready(Action::Run(on_response)) => RenderedAction::Run(on_response),
        EventualAction::Ready(Action::Queue(slot)) => RenderedAction::Queue(slot),
        EventualAction::Ready(Action::Reject(rejection)) => {
            RenderedAction::Respond(render(plan, &rejection, head))
        }
        EventualAction::Pending(pending) => RenderedAction::Pending(pending),
    }
}

fn decide_all<'p>(plan: &'p Arc<Plan>, head: &Head<'_>) -> EventualAction<'p> {
    if plan.watch.is_on() {
        plan.watch_request();
    }
    if plan.limiter.is_plain() {
        decide_rules::<false>(plan, head)
    } else {
        decide_specially(plan, head)
    }
}

/// Decides for a limiter that is switched off or has observers.
#[cold]
fn decide_specially<'p>(plan: &'p Arc<Plan>, head: &Head<'_>) -> EventualAction<'p> {
    if plan.limiter.is_off() {
        return EventualAction::Ready(run_uncharged(plan));
    }
    decide_rules::<true>(plan, head)
}

fn decide_rules<'p, const IS_OBSERVED: bool>(
    plan: &'p Arc<Plan>,
    head: &Head<'_>,
) -> EventualAction<'p> {
    let (mut demands, mut shadows) = (RuleDemands::new(), Vec::new());
    for (position, planned) in plan.iter().enumerate() {
        if !planned.applies_to(head, || plan.limiter.random().next()) {
            continue;
        }
        match planned.demand(&plan.limiter, head, position) {
            Ok(Some(demand)) if planned.enforces(&demand) => demands.push(demand),
            Ok(Some(demand)) => shadows.push(demand.with_limit(demand.limit.to_static())),
            Ok(None) => tell_uncharged::<IS_OBSERVED>(plan, planned, Outcome::Exempt),
            // The key decides whether the rule is enforced. A client must not get out of a partly
            // enforced rule by a missing or malformed key, so such a request is always rejected.
            Err(no_key) if planned.rule.is_enforced_on_some() => {
                tell_uncharged::<IS_OBSERVED>(plan, planned, Outcome::NoKey);
                return EventualAction::Ready(Action::Reject(Rejection::NoKey(no_key)));
            }
            Err(_) => tell_uncharged::<IS_OBSERVED>(plan, planned, Outcome::NoKey),
        }
    }
    let action = match demands.is_empty() {
        true => EventualAction::Ready(run_uncharged(plan)),
        false => submit::<IS_OBSERVED>(plan, demands),
    };
    if shadows.is_empty() { action } else { shadow::charge_after(plan, action, shadows) }
}

/// Submits the demands to the store, and reads the answer, now or later.
fn submit<'p, const IS_OBSERVED: bool>(
    plan: &'p Arc<Plan>,
    mut demands: RuleDemands<'p>,
) -> EventualAction<'p> {
    let submission = Submission::new(plan, &demands);
    #[cfg(feature = "memory")]
    if let (Some(memory), Mode::Reserve(_)) = (plan.limiter.memory(), submission.mode) {
        let (modes, queues) = ([submission.mode, submission.longest], plan.limiter.queues());
        return EventualAction::Ready(
            // Decides and joins the lines in one step, under the locks of the buckets. So no
            // request that comes later gets in between, and nothing is pending that a dropped
            // request could leave.
            match plan.limiter.reserve(memory, &mut demands, modes, Some(queues)) {
                Ok((applied, ticket)) => {
                    let book = |grants: &[Grant], now, wait| {
                        Some(ReservedSlot::Line(LineSlot::new(
                            memory,
                            ticket?,
                            grants.iter(),
                            now,
                            wait,
                        )))
                    };
                    read_answer::<IS_OBSERVED>(plan, submission, demands, Ok(applied), book)
                }
                Err(error) => refuse_unasked::<IS_OBSERVED>(plan, &demands, error),
            },
        );
    }
    let reserves = matches!(submission.mode, Mode::Reserve(_));
    match plan.limiter.submit(&mut demands, submission.mode, submission.longest) {
        Ok(Answer::Ready(answer)) => {
            let book = slot_booking(plan);
            EventualAction::Ready(read_answer::<IS_OBSERVED>(
                plan, submission, demands, answer, book,
            ))
        }
        Ok(Answer::Pending(answer)) => {
            // In all other cases the tokens of a request that is dropped here stay taken anyway,
            // and no task has to wait for the answer.
            let gives_back = reserves || plan.settings.refunds_dropped;
            let answer = Answer::Pending(answer);
            let answer = if IS_OBSERVED { plan.limiter.timed(answer) } else { answer };
            let (plan, demands) = (Arc::clone(plan), to_static(&demands));
            let reading = async move {
                let answer = answer.wait().await;
                let book = slot_booking(&plan);
                read_answer::<IS_OBSERVED>(&plan, submission, demands, answer, book)
            };
            match gives_back {
                false => EventualAction::Pending(Box::pin(reading)),
                // Completes even if the client disconnects meanwhile. The store may have taken
                // tokens for the request by then; dropping the action returns them.
                true => {
                    let reading = Answer::pending(async move { Ok(reading.await) });
                    let detached = DetachOnDrop::new(reading);
                    EventualAction::Pending(Box::pin(async move {
                        // `reading` never fails.
                        detached.await.unwrap_or_else(|_| Action::reject(UNAVAILABLE))
                    }))
                }
            }
        }
        Err(error) => EventualAction::Ready(refuse_unasked::<IS_OBSERVED>(plan, &demands, error)),
    }
}

/// How the demands of a request are submitted, and how it is answered if they are refused.
#[derive(Clone, Copy)]
struct Submission {
    mode: Mode,
    /// The mode of an empty queue. A cost that an empty queue could grant is not too large, however
    /// full the queue is now.
    longest: Mode,
    queue: Option<Queue>,
    max_wait: Duration,
    status: StatusCode,
    jitter: Duration,
}

impl Submission {
    fn new(plan: &Plan, demands: &[Demand<RuleLimit<'_>>]) -> Self {
        let (limiter, queue) = (&plan.limiter, plan.settings.queue);
        let jitter = limiter.random().up_to(plan.settings.jitter);
        let Some(queue) = queue else {
            let (mode, max_wait) = (Mode::Take, Duration::ZERO);
            return Self { mode, longest: mode, queue, max_wait, status: TOO_MANY, jitter };
        };
        // If the queue has no room, the request reserves no slot: it could not keep it.
        // Not counted yet: the store may admit the request at once. `enqueue` counts it.
        let checked = plan.waiters.check(&queue, || counted_keys(plan, demands));
        let drain = limiter.time_to_drain();
        let max_wait = drain.map_or(queue.max_wait, |end| end.min(queue.max_wait));
        let status = match (checked, drain) {
            (Err(refusal), None) => status_of_refusal(&queue, refusal),
            (Err(QueueRefusal::Full), Some(_)) => queue.on_full.status(),
            // The server shuts down, so the refusal is not due to the client.
            (_, Some(_)) => UNAVAILABLE,
            (Ok(()), None) => TOO_MANY,
        };
        let mode = if checked.is_ok() { Mode::Reserve(max_wait) } else { Mode::Take };
        let longest = Mode::Reserve(queue.max_wait);
        Self { mode, longest, queue: Some(queue), max_wait, status, jitter }
    }

    fn refuse<'p>(self, demands: RuleDemands<'p>, outcome: CompleteAnswer) -> Action<'p> {
        let Self { status, jitter, .. } = self;
        Action::Reject(Rejection::Refused(Refusal { demands, outcome, status, jitter }))
    }
}

/// Turns the answer of the store into an action.
fn read_answer<'p, const IS_OBSERVED: bool>(
    plan: &Arc<Plan>,
    submission: Submission,
    demands: RuleDemands<'p>,
    answer: Result<Applied, BackendError>,
    book: impl FnOnce(&[Grant], Timestamp, Duration) -> Option<ReservedSlot>,
) -> Action<'p> {
    let first = demands.first().map_or_else(|| plan.limit(), Demand::limit);
    let outcome = match answer.and_then(|applied| CompleteAnswer::new(&demands, applied)) {
        Ok(outcome) => outcome,
        Err(error) => return store_failed::<IS_OBSERVED>(plan, &demands, &error),
    };
    plan.limiter.store_answered(first, outcome.applied());
    match outcome.verdict() {
        Verdict::Admitted => {
            tell::<IS_OBSERVED>(plan, || answered(&demands, &outcome, None));
            Action::Run(on_admission(plan, &demands, &outcome))
        }
        Verdict::Reserved => match submission.queue {
            Some(queue) => enqueue::<IS_OBSERVED>(&queue, plan, submission, demands, outcome, book),
            // The store reserved a slot that was not demanded. The request can neither run nor
            // count as refused.
            None => store_failed::<IS_OBSERVED>(plan, &demands, &BackendError::incomplete()),
        },
        Verdict::Refused => {
            // If an empty queue would have refused the request as well, the full queue is not the
            // reason. Nor is it if a bucket is not counted in the numbers of its limit yet: those
            // cannot reserve.
            let longest = submission.longest;
            let is_full = submission.queue.is_some()
                && !outcome.applied().has_kept()
                && outcome
                    .each(&demands)
                    .all(|(demand, readings)| demand.could_wait(readings, longest));
            let status = if is_full { submission.status } else { TOO_MANY };
            tell::<IS_OBSERVED>(plan, || {
                // A layer with a queue asks for a place in it, unless that has none.
                let had_no_place = is_full && matches!(submission.mode, Mode::Take);
                let denied = if had_no_place { Outcome::QueueFull } else { Outcome::Refused };
                answered(&demands, &outcome, Some(denied))
            });
            Submission { status, ..submission }.refuse(demands, outcome)
        }
    }
}

/// Makes the booking of a slot in a store that other processes use as well.
fn slot_booking(plan: &Plan) -> impl FnOnce(&[Grant], Timestamp, Duration) -> Option<ReservedSlot> {
    |grants, now, wait| {
        let slot = HeldSlot::new(plan.limiter.queues(), grants.iter(), now + wait, now);
        Some(ReservedSlot::Slot(Box::new(slot)))
    }
}

/// Puts a request into the queue, to wait for the slot that was reserved for it.
fn enqueue<'p, const IS_OBSERVED: bool>(
    queue: &Queue,
    plan: &Arc<Plan>,
    submission: Submission,
    demands: RuleDemands<'p>,
    outcome: CompleteAnswer,
    book: impl FnOnce(&[Grant], Timestamp, Duration) -> Option<ReservedSlot>,
) -> Action<'p> {
    let (at, wait) = (outcome.at(), outcome.wait());
    let owned = demands.iter().map(|demand| demand.with_limit(demand.limit.shared_limit()));
    let grants: Vec<_> = outcome.grants(owned).collect();
    let slowest = grants.iter().max_by_key(|grant| grant.wait()).map(Grant::shared_limit);
    let (Some(limit), Some(booking)) = (slowest.cloned(), book(&grants, at, wait)) else {
        return store_failed::<IS_OBSERVED>(plan, &demands, &BackendError::incomplete());
    };
    // Counted only here: a request that need not wait does not count.
    let guard = match plan.waiters.add(queue, counted_keys(plan, &demands)) {
        Ok(guard) => guard,
        // Others have taken the places since the check. `booking` is dropped with this scope, and
        // gives up the slot.
        Err(refusal) => {
            let status = status_of_refusal(queue, refusal);
            tell::<IS_OBSERVED>(plan, || answered(&demands, &outcome, Some(Outcome::QueueFull)));
            return Submission { status, ..submission }.refuse(demands, outcome);
        }
    };
    // The jitter never pushes a turn beyond the longest wait.
    let jitter = submission.jitter.min(submission.max_wait.saturating_sub(wait));
    let ledger = RequestLedger::from_outcome(plan, &demands, &outcome);
    let stay = if IS_OBSERVED {
        join(plan, &demands, &outcome, &limit, wait.saturating_add(jitter))
    } else {
        None
    };
    Action::Queue(Box::new(QueuedSlot { booking, limit, guard, jitter, ledger, stay }))
}

/// The keys for which the request counts as a waiter.
fn counted_keys(plan: &Plan, demands: &[Demand<RuleLimit<'_>>]) -> KeyHashes {
    let is_counted = |demand: &&Demand<RuleLimit<'_>>| {
        plan.rule_at(demand.limit.rule).is_some_and(|planned| planned.is_keyed)
    };
    let counted = demands.iter().filter(is_counted);
    counted.map(|demand| plan.waiters.hash(demand.limit.rule, &demand.key)).collect()
}

const fn status_of_refusal(queue: &Queue, refusal: QueueRefusal) -> StatusCode {
    match refusal {
        QueueRefusal::Full => queue.on_full.status(),
        // The queue still has room for other clients.
        QueueRefusal::KeyAtBound => TOO_MANY,
    }
}

/// What to do with the response of an admitted request.
pub(super) fn on_admission(
    plan: &Arc<Plan>,
    demands: &[Demand<RuleLimit<'_>>],
    outcome: &CompleteAnswer,
) -> OnResponse {
    if let [demand] = demands
        && !plan.watch.is_on()
        && let Some(lone) = on_lone_response(plan, demand.limit(), || outcome.level(demand))
    {
        return lone;
    }
    let fields = plan.sends_fields().then(|| field_set(plan, demands, outcome));
    let ledger = RequestLedger::from_outcome(plan, demands, outcome);
    OnResponse::new(plan.restyling.as_ref(), fields, None, ledger)
}

/// Runs a request without charging it.
fn run_uncharged<'p>(plan: &Arc<Plan>) -> Action<'p> {
    let ledger = plan.keeps_ledgers().then(|| Arc::new(RequestLedger::new(plan)));
    Action::Run(OnResponse::new(plan.restyling.as_ref(), None, None, ledger))
}

/// The cost is more than the limits could ever grant, or one of them grants nothing.
#[cold]
fn refuse_unasked<'p, const IS_OBSERVED: bool>(
    plan: &Plan,
    demands: &[Demand<RuleLimit<'_>>],
    error: RateLimited,
) -> Action<'p> {
    tell::<IS_OBSERVED>(plan, || Report::failed(DecisionSource::Layer, limits(demands), &error));
    Action::Reject(Rejection::Unasked(error))
}

#[cold]
fn store_failed<'p, const IS_OBSERVED: bool>(
    plan: &Arc<Plan>,
    demands: &[Demand<RuleLimit<'_>>],
    error: &BackendError,
) -> Action<'p> {
    let own = demands.iter().map(Demand::limit);
    let passes = RateLimiter::passes(error, own, plan.settings.on_failure);
    let on_failure = if passes { OnFailure::Admit } else { OnFailure::Refuse };
    let first = demands.first().map_or_else(|| plan.limit(), Demand::limit);
    plan.limiter.store_failed(first, error, Undecided::Request(on_failure));
    tell::<IS_OBSERVED>(plan, || {
        let outcome = if passes { Outcome::Uncounted } else { Outcome::Unavailable };
        Report::alike(DecisionSource::Layer, limits(demands), outcome)
    });
    if passes { run_uncharged(plan) } else { Action::unavailable(error) }
}

const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
