//! The way of a request through a plan: what its rules demand, what the store answers, and the
//! action that follows.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::action::{
    Action, ActionStep, QueuedSlot, Refusal, Rejection, RuleDemands, Step, to_static,
};
use super::advertise::{field_set, on_lone_response};
use super::ledger::RequestLedger;
use super::on_failure::OnFailure;
use super::on_response::OnResponse;
use super::places::KeyHashes;
use super::plan::Plan;
use super::planned_rule::Choice;
use super::queue::{NoPlace, Queue};
use super::reject::{TOO_MANY, render};
use super::shadow;
use crate::algebra::Verdict;
use crate::backend::{Answer, Applied, BackendError};
use crate::clock::Timestamp;
use crate::key::Head;
#[cfg(feature = "memory")]
use crate::limiter::LineSlot;
use crate::limiter::{
    Booking, Demand, DetachOnDrop, Grant, HeldSlot, Limit, Mode, Outcome, ReservationUnderWay,
};

/// Decides what is done with a request.
pub(super) fn decide(plan: &Arc<Plan>, head: &Head<'_>) -> Step {
    word(plan, head, decide_all(plan, head))
}

/// The same by what the only rule [demands](super::planned_rule::PlannedRule::demand).
#[cfg(feature = "memory")]
pub(super) fn decide_one(
    plan: &Arc<Plan>,
    head: &Head<'_>,
    demand: Result<Option<Demand<Choice<'_>>>, super::missing_key::NoKey>,
) -> Step {
    let step = match demand {
        Ok(Some(demand)) => submit(plan, RuleDemands::from_buf([demand])),
        Ok(None) => ActionStep::Ready(run_uncharged(plan)),
        Err(no_key) => ActionStep::Ready(Action::Reject(Rejection::NoKey(no_key))),
    };
    word(plan, head, step)
}

/// Words the answer to a request that is rejected at once.
fn word(plan: &Plan, head: &Head<'_>, step: ActionStep<'_>) -> Step {
    match step {
        ActionStep::Ready(Action::Run(on_response)) => Step::Run(on_response),
        ActionStep::Ready(Action::Queue(slot)) => Step::Queue(slot),
        ActionStep::Ready(Action::Reject(rejection)) => {
            Step::Answer(render(plan, &rejection, head))
        }
        ActionStep::Pending(pending) => Step::Pending(pending),
    }
}

fn decide_all<'p>(plan: &'p Arc<Plan>, head: &Head<'_>) -> ActionStep<'p> {
    let (mut demands, mut shadows) = (RuleDemands::new(), Vec::new());
    for (position, planned) in plan.iter().enumerate() {
        if !planned.applies_to(head, || plan.limiter.random().next()) {
            continue;
        }
        match planned.demand(head, position) {
            Ok(Some(demand)) if planned.enforces(&demand) => demands.push(demand),
            Ok(Some(demand)) => shadows.push(demand.with_limit(demand.limit.to_static())),
            Ok(None) => {}
            // Whether the rule is enforced on a key follows from the key. A client that sends none, or
            // nonsense, must not choose by that to be one of those that it is not enforced on.
            Err(no_key) if planned.rule.is_enforced_on_some() => {
                return ActionStep::Ready(Action::Reject(Rejection::NoKey(no_key)));
            }
            Err(_) => {}
        }
    }
    let step = match demands.is_empty() {
        true => ActionStep::Ready(run_uncharged(plan)),
        false => submit(plan, demands),
    };
    if shadows.is_empty() { step } else { shadow::charge_after(plan, step, shadows) }
}

/// Asks the store, and reads its answer when it is there.
fn submit<'p>(plan: &'p Arc<Plan>, mut demands: RuleDemands<'p>) -> ActionStep<'p> {
    let submission = Submission::new(plan, &demands);
    #[cfg(feature = "memory")]
    if let (Some(memory), Mode::Reserve(_)) = (plan.limiter.memory(), submission.mode) {
        let (modes, queues) = ([submission.mode, submission.longest], plan.limiter.queues());
        return ActionStep::Ready(
            match plan.limiter.reserve(memory, &mut demands, modes, Some(queues)) {
                Ok((applied, ticket)) => {
                    let book = |grants: &[Grant], now, wait| {
                        Some(Booking::Line(LineSlot::new(
                            memory,
                            ticket?,
                            grants.iter(),
                            now,
                            wait,
                        )))
                    };
                    read(plan, submission, demands, Ok(applied), book)
                }
                Err(error) => Action::Reject(Rejection::TooLarge(error)),
            },
        );
    }
    let reserves = matches!(submission.mode, Mode::Reserve(_));
    let under_way = reserves.then(|| ReservationUnderWay::new(plan.limiter.queues()));
    match plan.limiter.submit(&mut demands, submission.mode, submission.longest) {
        Ok(Answer::Ready(answer)) => {
            let book = book_slot(plan);
            ActionStep::Ready(read(plan, submission, demands, answer, book))
        }
        Ok(Answer::Pending(answer)) => {
            let gives_back = reserves || plan.settings.refunds_dropped;
            let (plan, demands) = (Arc::clone(plan), to_static(&demands));
            let reading = async move {
                let answer = answer.await;
                let action = read(&plan, submission, demands, answer, book_slot(&plan));
                drop(under_way);
                action
            };
            match gives_back {
                false => ActionStep::Pending(Box::pin(reading)),
                // Completed even if the client goes meanwhile: what was taken for it has to be given
                // back then, as the action does that is dropped.
                true => {
                    let reading = Answer::pending(async move { Ok(reading.await) });
                    let detached = DetachOnDrop::new(reading);
                    ActionStep::Pending(Box::pin(async move {
                        // It was made of a future that has no error.
                        detached.await.unwrap_or_else(|_| Action::reject(UNAVAILABLE))
                    }))
                }
            }
        }
        Err(error) => ActionStep::Ready(Action::Reject(Rejection::TooLarge(error))),
    }
}

/// How the demands of a request are made, and what it is told if they are refused.
#[derive(Clone, Copy)]
struct Submission {
    mode: Mode,
    /// What an empty queue could grant is not too large, however full this one is.
    longest: Mode,
    queue: Option<Queue>,
    max_wait: Duration,
    status: StatusCode,
    jitter: Duration,
}

impl Submission {
    fn new(plan: &Plan, demands: &[Demand<Choice<'_>>]) -> Self {
        let (limiter, queue) = (&plan.limiter, plan.settings.queue);
        let jitter = limiter.random().up_to(plan.settings.jitter);
        let Some(queue) = queue else {
            let (mode, max_wait) = (Mode::Take, Duration::ZERO);
            return Self { mode, longest: mode, queue, max_wait, status: TOO_MANY, jitter };
        };
        // Without room in the queue, nothing is reserved that would have to be given up.
        let place = plan.places.look(&queue, || counted_keys(plan, demands));
        let drain = limiter.time_to_drain();
        let max_wait = drain.map_or(queue.max_wait, |end| end.min(queue.max_wait));
        let status = match (place, drain) {
            (Err(no_place), None) => status_without_place(&queue, no_place),
            (Err(NoPlace::Full), Some(_)) => queue.on_full.status(),
            // The client has not asked for too much: the server is going away.
            (_, Some(_)) => UNAVAILABLE,
            (Ok(()), None) => TOO_MANY,
        };
        let mode = if place.is_ok() { Mode::Reserve(max_wait) } else { Mode::Take };
        let longest = Mode::Reserve(queue.max_wait);
        Self { mode, longest, queue: Some(queue), max_wait, status, jitter }
    }

    fn refuse<'p>(self, demands: RuleDemands<'p>, outcome: Outcome) -> Action<'p> {
        let Self { status, jitter, .. } = self;
        Action::Reject(Rejection::Refused(Refusal { demands, outcome, status, jitter }))
    }
}

/// Reads what the store has answered.
fn read<'p>(
    plan: &Arc<Plan>,
    submission: Submission,
    demands: RuleDemands<'p>,
    answer: Result<Applied, BackendError>,
    book: impl FnOnce(&[Grant], Timestamp, Duration) -> Option<Booking>,
) -> Action<'p> {
    let first = demands.first().map_or_else(|| plan.limit(), Demand::limit);
    let outcome = match answer.and_then(|applied| Outcome::new(&demands, applied)) {
        Ok(outcome) => outcome,
        Err(error) => return store_failed(plan, first, &error),
    };
    let verdict = outcome.verdict();
    if verdict != Verdict::Refused {
        plan.log.store_took(first);
    }
    match verdict {
        Verdict::Admitted => Action::Run(run(plan, &demands, &outcome)),
        Verdict::Reserved => match submission.queue {
            Some(queue) => wait_in(&queue, plan, submission, demands, outcome, book),
            // Not asked for: not now in any case, and no refusal either.
            None => store_failed(plan, first, &BackendError::incomplete()),
        },
        Verdict::Refused => {
            // What an empty queue would have refused as well is not the fault of other requests.
            let longest = submission.longest;
            let is_full = submission.queue.is_some()
                && outcome
                    .each(&demands)
                    .all(|(demand, readings)| demand.could_wait(readings, longest));
            let status = if is_full { submission.status } else { TOO_MANY };
            Submission { status, ..submission }.refuse(demands, outcome)
        }
    }
}

/// Holds the slot of a request in a store that other processes take from as well.
fn book_slot(plan: &Plan) -> impl FnOnce(&[Grant], Timestamp, Duration) -> Option<Booking> {
    |grants, now, wait| {
        let slot = HeldSlot::new(plan.limiter.queues(), grants.iter(), now + wait, now);
        Some(Booking::Slot(Box::new(slot)))
    }
}

/// Lets a request wait in the queue for the slot that was reserved for it.
fn wait_in<'p>(
    queue: &Queue,
    plan: &Arc<Plan>,
    submission: Submission,
    demands: RuleDemands<'p>,
    outcome: Outcome,
    book: impl FnOnce(&[Grant], Timestamp, Duration) -> Option<Booking>,
) -> Action<'p> {
    let (at, wait) = (outcome.at(), outcome.wait());
    let owned = demands.iter().map(|demand| demand.with_limit(demand.limit.shared_limit()));
    let grants: Vec<_> = outcome.grants(owned).collect();
    let Some(booking) = book(&grants, at, wait) else {
        let first = demands.first().map_or_else(|| plan.limit(), Demand::limit);
        return store_failed(plan, first, &BackendError::incomplete());
    };
    // Only now, as a request that need not wait takes no place.
    let place = match plan.places.take(queue, counted_keys(plan, &demands)) {
        Ok(place) => place,
        Err(no_place) => {
            let status = status_without_place(queue, no_place);
            return Submission { status, ..submission }.refuse(demands, outcome);
        }
    };
    // Chance never decides whether there is a turn.
    let jitter = submission.jitter.min(submission.max_wait.saturating_sub(wait));
    let ledger = RequestLedger::of(plan, &demands, &outcome);
    Action::Queue(Box::new(QueuedSlot { booking, place, jitter, ledger }))
}

/// The keys by which the waiters of a request are counted.
fn counted_keys(plan: &Plan, demands: &[Demand<Choice<'_>>]) -> KeyHashes {
    let is_counted = |demand: &&Demand<Choice<'_>>| {
        plan.rule_at(demand.limit.rule).is_some_and(|planned| planned.is_keyed)
    };
    let counted = demands.iter().filter(is_counted);
    counted.map(|demand| plan.places.hash(demand.limit.rule, &demand.key)).collect()
}

const fn status_without_place(queue: &Queue, no_place: NoPlace) -> StatusCode {
    match no_place {
        NoPlace::Full => queue.on_full.status(),
        // The client has its share of the queue, and others still find a place.
        NoPlace::KeyHasShare => TOO_MANY,
    }
}

/// What is done with the response of a request that was admitted.
pub(super) fn run(
    plan: &Arc<Plan>,
    demands: &[Demand<Choice<'_>>],
    outcome: &Outcome,
) -> OnResponse {
    if let [demand] = demands
        && let Some(lone) = on_lone_response(plan, demand.limit(), || outcome.level(demand))
    {
        return lone;
    }
    let fields = plan.sends_fields().then(|| field_set(plan, demands, outcome));
    let ledger = RequestLedger::of(plan, demands, outcome);
    OnResponse::new(fields, None, ledger)
}

/// Lets a request run that is held to no limit.
fn run_uncharged<'p>(plan: &Arc<Plan>) -> Action<'p> {
    let ledger = plan.tracks_charges.then(|| Arc::new(RequestLedger::new(plan)));
    Action::Run(OnResponse::new(None, None, ledger))
}

#[cold]
fn store_failed<'p>(plan: &Arc<Plan>, limit: &Limit, error: &BackendError) -> Action<'p> {
    let on_failure = plan.settings.on_failure;
    plan.log.store_failed(limit, error, on_failure);
    match on_failure {
        OnFailure::Admit if error.is_outage() => run_uncharged(plan),
        OnFailure::Admit | OnFailure::Refuse => Action::reject(UNAVAILABLE),
    }
}

const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
