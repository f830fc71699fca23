//! A request in the queue: it waits for its turn, or until it has waited for as long as it may.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tokio::time::Instant;
use tower_service::Service;

use super::admission::Admission;
use super::ledger::{RequestLedger, RunningLedger};
use super::lock_out;
use super::on_response::OnResponse;
use super::plan::Plan;
use super::planned_rule::{RuleDemands, Shadow};
use super::reject::{Refusal, Rejection, TOO_MANY};
use super::shadow;
use super::waiter_counter::WaiterGuard;
use crate::fields::{self, SOON};
use crate::limiter::{
    Level, Limit, QueueBucket, QueueStay, QueueStep, ReservedSlot, Unserved, UsedTurn,
    wait_for_turn,
};

/// What a request holds while it waits.
pub(super) struct QueuedWaiter {
    /// The limit that makes it wait: of several, the one with the longest wait.
    pub(super) limit: Arc<Limit>,
    /// Counts the request as a waiter until the inner service is called.
    pub(super) guard: WaiterGuard,
    pub(super) ledger: Option<Arc<RequestLedger>>,
    /// Charged at its turn.
    pub(super) shadows: Vec<Shadow>,
    /// If the limiter has observers.
    pub(super) stay: Option<QueueStay>,
    /// If its turn may come too late.
    pub(super) patience: Option<Patience>,
}

/// A request that waits although it was told an instant that is too late.
pub(super) struct Patience {
    /// How long it waits.
    pub(super) max_wait: Duration,
    /// To be looked at when it gives up.
    pub(super) demands: RuleDemands<'static>,
    /// Added to the wait of its refusal.
    pub(super) jitter: Duration,
}

/// The turn of a request, or why it has left the queue.
pub(super) type PendingTurn =
    Pin<Box<dyn Future<Output = Result<Box<QueuedTurn>, Rejection<'static>>> + Send>>;

/// A request whose turn has come. Dropping it frees the slot and the room in the queue for others.
pub(super) struct QueuedTurn {
    turn: Box<dyn ReservedSlot>,
    since: Instant,
    waiter: QueuedWaiter,
}

/// Waits for the turn of `slot`, and for `jitter` longer. Dropping the future gives up the slot.
pub(super) fn wait(
    plan: &Arc<Plan>,
    slot: Box<dyn ReservedSlot>,
    jitter: Duration,
    waiter: QueuedWaiter,
) -> PendingTurn {
    let (plan, since) = (Arc::clone(plan), Instant::now());
    Box::pin(async move {
        let expires = waiter.patience.as_ref().and_then(|one| since.checked_add(one.max_wait));
        let drained_by = Some(Arc::clone(plan.limiter.queues()));
        let unserved = match wait_for_turn(slot, jitter, drained_by, expires).await {
            Ok(turn) => return Ok(Box::new(QueuedTurn { turn, since, waiter })),
            Err(unserved) => unserved,
        };
        let QueuedWaiter { guard, stay, patience, .. } = waiter;
        // It has left. The store may be asked when it should come back.
        drop(guard);
        // While the server shuts down, the refusal is not due to the client.
        let is_drained = plan.limiter.queues().time_to_drain().is_some();
        let has_expired = unserved == Unserved::Expired && !is_drained;
        let patience = patience.filter(|_| has_expired);
        let step = patience.as_ref().map(|_| QueueStep::Expired);
        if let Some(stay) = stay {
            stay.end(step.unwrap_or(QueueStep::Drained));
        }
        Err(reject(plan, patience).await)
    })
}

/// The turn of a request while its service is called. If the call panics, the request has run all
/// the same.
struct CalledTurn(Option<(Box<dyn ReservedSlot>, Option<QueueStay>)>);

impl CalledTurn {
    fn use_up(&mut self) -> Option<UsedTurn> {
        let (turn, stay) = self.0.take()?;
        let used = turn.use_up();
        if let Some(stay) = stay {
            stay.end(QueueStep::Served);
        }
        Some(used)
    }
}

impl Drop for CalledTurn {
    fn drop(&mut self) {
        self.use_up();
    }
}

impl QueuedTurn {
    /// Calls the inner service, which is ready.
    pub(super) fn call<S: Service<Request<B>>, B>(
        self,
        plan: &Arc<Plan>,
        mut service: S,
        mut request: Request<B>,
    ) -> (S::Future, OnResponse) {
        let Self { turn: pending, since, waiter } = self;
        let QueuedWaiter { limit, guard, ledger, stay, shadows, .. } = waiter;
        // Their answers are not waited for: the request runs at its instant.
        shadow::charge_beside(plan, ledger.as_ref(), shadows);
        if let Some(ledger) = &ledger {
            ledger.outlive_resets(&*pending);
            // Before the call, so that the handler finds its `Admission` and its meter in the
            // request.
            Admission::expose(ledger, request.extensions_mut());
        }
        let waited = since.elapsed();
        let mut turn = CalledTurn(Some((pending, stay)));
        let running = ledger.map(RunningLedger);
        let future = service.call(request);
        // After the call, so that the requests behind this one call the service after it.
        let used = turn.use_up();
        // The request was counted until here, so the bound of the queue includes those that wait for
        // the service.
        drop(guard);
        let timing = fields::server_timing(&limit, waited);
        let fields = used.filter(|_| plan.sends_fields).map(|used| {
            let levels = levels_at_turn(plan, &used);
            if let Some(running) = &running {
                running.0.stand(&levels);
            }
            let members = levels.iter();
            plan.fields_of(members.map(|(part, level)| (part.limit(), part.key(), *level)))
        });
        (future, OnResponse::new(fields, timing, running))
    }
}

/// The limits of a request that has waited, and how they stand at its turn, in the order of the rules.
fn levels_at_turn<'t>(plan: &Plan, turn: &'t UsedTurn) -> Vec<(&'t QueueBucket, Level)> {
    let mut levels = Vec::new();
    for (part, state) in &turn.buckets {
        // A limit in shards has several parts; the fields show the first.
        if levels.last().is_none_or(|(last, _): &(&_, _)| !part.is_of_same_limit(last)) {
            // The cost does not matter: waiters hold all tokens, so none remain.
            levels.push((part, Level::admitted(*state, 1, turn.at)));
        }
    }
    levels.sort_by_key(|(part, _)| plan.position(part.limit().name()));
    levels
}

/// The rejection of a request that has waited for as long as it may: what a new one would be told that
/// costs the same. Without patience, it has left because the limiter is drained.
async fn reject(plan: Arc<Plan>, patience: Option<Patience>) -> Rejection<'static> {
    let Some(Patience { demands, jitter, .. }) = patience else {
        plan.log.drained(plan.limit());
        return Rejection::Unavailable(SOON);
    };
    match plan.limiter.look(&demands).await {
        Ok(outcome) => {
            let status = TOO_MANY;
            lock_out::reject(plan, Refusal { demands, outcome, status, jitter }).await
        }
        Err(error) => Rejection::unavailable(&error),
    }
}
