//! A request in the queue: it waits for its turn, or until it has waited for as long as it may.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tokio::time::Instant;
use tower_service::Service;

use super::admission::Admission;
use super::ledger::{RequestLedger, RunningLedger};
use super::log::log_drained;
use super::on_response::OnResponse;
use super::plan::Plan;
use super::planned_rule::{Failure, RuleDemands, RuleLimit, Shadow, to_static};
use super::reject::{Refusal, Rejection, TOO_MANY};
use super::shadow;
use super::waiter_counter::{KeyHashes, WaiterGuard};
use crate::backend::BackendError;
use crate::fields::{self, SOON};
use crate::limiter::{
    Asking, CompleteAnswer, Demand, Grant, Limit, LineTicket, Outcome, QueueStay, QueueStep,
    ReservedSlot, wait_for_turn,
};

/// A request that waits, and then its turn. Dropping it frees the slot and the room in the queue for
/// others.
pub(super) struct QueuedRequest {
    slot: Box<dyn ReservedSlot>,
    since: Instant,
    /// What it was granted, in the order of the rules.
    grants: Vec<Grant>,
    /// The limit that makes it wait: of several, the one with the longest wait.
    limit: Arc<Limit>,
    /// Counts the request as a waiter until the inner service is called.
    guard: WaiterGuard,
    ledger: Option<Arc<RequestLedger>>,
    /// Charged at its turn.
    shadows: Vec<Shadow>,
    /// If the limiter has observers.
    stay: Option<QueueStay>,
}

/// The turn of a request, or why it has left the queue.
pub(super) type PendingTurn =
    Pin<Box<dyn Future<Output = Result<Box<QueuedRequest>, Rejection<'static>>> + Send>>;

/// Lets a request wait for its turn, and for `jitter` longer, unless the queue has filled up in the
/// meantime. Dropping the future gives up the slot.
#[expect(clippy::result_large_err, reason = "it is one of two answers, and no error")]
pub(super) fn enqueue<'p>(
    plan: &Arc<Plan>,
    asking: Asking,
    jitter: Duration,
    demands: RuleDemands<'p>,
    shadows: Vec<Shadow>,
    answer: CompleteAnswer,
    ticket: Option<LineTicket>,
) -> Result<PendingTurn, Rejection<'p>> {
    let owned = demands.iter().map(|demand| demand.with_limit(demand.limit.shared_limit()));
    let grants: Vec<_> = answer.grants(owned).collect();
    let slot = plan.limiter.hold(ticket, &answer, grants.iter());
    let (Some(queue), Some(limit), Some(slot)) =
        (plan.settings.queue, Grant::slowest(grants.iter()).cloned(), slot)
    else {
        return Err(Rejection::unavailable(&BackendError::incomplete()));
    };
    // Counted only here: a request that need not wait does not count.
    let guard = match plan.waiters.add(&queue, counted_keys(plan, &demands)) {
        Ok(guard) => guard,
        // Others have taken the places since the check. `slot` is dropped with this scope, and
        // gives up the slot.
        Err(status) => {
            plan.limiter.tell(&demands, asking, &answer, Some(Outcome::QueueFull));
            let refusal = Refusal { demands, outcome: answer, status, jitter };
            return Err(Rejection::Refused(refusal));
        }
    };
    // The jitter never pushes a turn beyond the longest wait. If the request was told a later instant,
    // it is cut when the turn comes.
    let (max_wait, told) = (asking.max_wait(), answer.wait());
    let cut = max_wait.checked_sub(told).map_or(jitter, |rest| jitter.min(rest));
    let ledger = RequestLedger::from_outcome(plan, &demands, &answer);
    let stay = plan.limiter.join(&demands, asking, &answer, &limit, told.saturating_add(cut));
    let late = (told > max_wait).then(|| {
        let demands = to_static(&demands);
        (max_wait, Refusal { demands, outcome: answer, status: TOO_MANY, jitter })
    });
    let request =
        QueuedRequest { slot, since: Instant::now(), grants, limit, guard, ledger, shadows, stay };
    Ok(wait(Arc::clone(plan), Box::new(request), cut, late))
}

/// `late`: if its turn may come too late, how long the request waits, and what it is told after that.
fn wait(
    plan: Arc<Plan>,
    mut request: Box<QueuedRequest>,
    jitter: Duration,
    late: Option<(Duration, Refusal<'static>)>,
) -> PendingTurn {
    Box::pin(async move {
        let expires = late.as_ref().and_then(|(after, _)| request.since.checked_add(*after));
        let drains = Some(plan.limiter.state.queues.drain_end());
        let slot = &mut *request.slot;
        let Err(step) = wait_for_turn(slot, jitter, drains, expires).await else {
            return Ok(request);
        };
        let QueuedRequest { slot, guard, stay, .. } = *request;
        // It has left. The store may be asked when it should come back.
        drop((slot, guard));
        // While the server shuts down, the refusal is not due to the client.
        let is_drained = plan.limiter.state.queues.time_to_drain().is_some();
        let step = if is_drained { QueueStep::Drained } else { step };
        let late = late.filter(|_| step == QueueStep::Expired);
        if let Some(stay) = stay {
            stay.end(step);
        }
        let Some((_, refusal)) = late else {
            log_drained(plan.limit());
            return Err(Rejection::Failed(Failure::unavailable(SOON)));
        };
        // What a new request would be told that costs the same.
        Err(match plan.limiter.look(&refusal.demands).await {
            Ok(outcome) => Refusal { outcome, ..refusal }.count(plan).await,
            Err(error) => Rejection::unavailable(&error),
        })
    })
}

/// The keys for which the request counts as a waiter.
pub(super) fn counted_keys(plan: &Plan, demands: &[Demand<RuleLimit<'_>>]) -> KeyHashes {
    let is_counted = |demand: &&Demand<RuleLimit<'_>>| {
        plan.rule_at(demand.limit.rule).is_some_and(|planned| !planned.rule.key.is_global())
    };
    let counted = demands.iter().filter(is_counted);
    counted.map(|demand| plan.waiters.hash(demand.limit.rule, &demand.key)).collect()
}

impl QueuedRequest {
    /// Calls the inner service, which is ready.
    pub(super) fn call<S: Service<Request<B>>, B>(
        self,
        plan: &Arc<Plan>,
        mut service: S,
        mut request: Request<B>,
    ) -> (S::Future, OnResponse) {
        let Self { slot, since, grants, limit, guard, ledger, shadows, stay } = self;
        // Their answers are not waited for: the request runs at its instant.
        shadow::charge_beside(plan, ledger.as_ref(), shadows);
        if let Some(ledger) = &ledger {
            ledger.note_paid(&*slot);
            // Before the call, so that the handler finds its `Admission` and its meter in the
            // request.
            Admission::expose(ledger, &mut request);
        }
        let waited = since.elapsed();
        let running = ledger.map(RunningLedger);
        // If the call panics, the request has run all the same.
        let called = catch_unwind(AssertUnwindSafe(|| service.call(request)));
        // After the call, so that the requests behind this one call the service after it.
        let turn = slot.use_up();
        if let Some(stay) = stay {
            stay.end(QueueStep::Served);
        }
        // The request was counted until here, so the bound of the queue includes those that wait for
        // the service.
        drop(guard);
        let future = called.unwrap_or_else(|panic| resume_unwind(panic));
        let timing = fields::server_timing(&limit, waited);
        let fields = plan.sends_fields.then(|| {
            let levels: Vec<_> = grants.iter().map(|grant| grant.level_at(turn)).collect();
            if let Some(running) = &running {
                running.0.stand(&levels);
            }
            let members = grants.iter().zip(levels);
            plan.fields_of(members.map(|(grant, level)| (grant.limit(), &grant.key, level)))
        });
        (future, OnResponse::new(fields, timing, running))
    }
}
