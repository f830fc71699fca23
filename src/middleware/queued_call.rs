//! A request in the queue: it waits for its turn, then for the inner service to be ready; or until it
//! has waited for as long as it may.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::action::{Patience, QueuedSlot, QueuedWaiter, Refusal, Rejection};
use super::advertise::{fields_of, levels_at_turn};
use super::body::RefusalText;
use super::lock_out;
use super::on_response::{OnResponse, RunningLedger};
use super::plan::Plan;
use super::read_on::read_on;
use super::reject::{TOO_MANY, render};
use super::shadow;
use crate::fields::{self, OutageHint};
use crate::key::Head;
use crate::limiter::{PendingTurn, QueueStay, QueueStep, Unserved, UsedTurn, Wait};

pin_project! {
    // Boxed as a whole, so that the futures of requests that do not wait stay small.
    pub(super) struct QueuedCall<S, B> {
        #[pin]
        stage: QueuedCallStage<B>,
        // `None` once the wait has ended.
        held: Option<WaitingRequest<S, B>>,
    }
}

pin_project! {
    #[project = QueuedCallStageProjection]
    enum QueuedCallStage<B> {
        Waiting { #[pin] wait: Wait },
        // Its turn has come; the inner service is not called yet.
        Turn { turn: Option<PendingTurn> },
        // It has left. The store may be asked when it should come back.
        Left { rejection: PendingRejection, left: Option<(Arc<Plan>, Request<B>)> },
    }
}

type PendingRejection = Pin<Box<dyn Future<Output = Rejection<'static>> + Send>>;

struct WaitingRequest<S, B> {
    service: S,
    request: Request<B>,
    since: Instant,
    plan: Arc<Plan>,
    waiter: QueuedWaiter,
}

/// The turn of a request while its service is called. If the call panics, the request has run all
/// the same.
struct CalledTurn(Option<(PendingTurn, Option<QueueStay>)>);

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

/// How a wait ends.
pub(super) enum QueueExit<F> {
    Called(F, OnResponse),
    Rejected(Response<RefusalText>),
}

impl<S, B> QueuedCall<S, B> {
    /// `service` has to be a clone that is not ready: a ready one may hold a resource while the
    /// request waits.
    pub(super) fn new(
        service: S,
        request: Request<B>,
        plan: Arc<Plan>,
        slot: QueuedSlot,
    ) -> Pin<Box<Self>> {
        let QueuedSlot { booking, jitter, waiter } = slot;
        let since = Instant::now();
        let expires = waiter.patience.as_ref().and_then(|one| since.checked_add(one.max_wait));
        let wait = Wait::new(booking, jitter, Some(plan.limiter.queues())).expiring(expires);
        let held = WaitingRequest { service, request, since, plan, waiter };
        Box::pin(Self { stage: QueuedCallStage::Waiting { wait }, held: Some(held) })
    }
}

impl<S, B> QueuedCall<S, B>
where
    S: Service<Request<B>>,
    B: 'static,
{
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<QueueExit<S::Future>, S::Error>> {
        let mut this = self.project();
        loop {
            let turn = match this.stage.as_mut().project() {
                QueuedCallStageProjection::Waiting { wait } => match ready!(wait.poll(cx)) {
                    Ok(turn) => {
                        this.stage.set(QueuedCallStage::Turn { turn: Some(turn) });
                        continue;
                    }
                    // The wait has given up the slot already.
                    Err(unserved) => {
                        let Some(held) = this.held.take() else { return Poll::Pending };
                        // Dropping the rest frees its room in the queue.
                        let WaitingRequest { plan, request, waiter, .. } = held;
                        let QueuedWaiter { stay, patience, .. } = waiter;
                        // While the server shuts down, the refusal is not due to the client.
                        let is_drained = plan.limiter.queues().time_to_drain().is_some();
                        let has_expired = unserved == Unserved::Expired && !is_drained;
                        let patience = patience.filter(|_| has_expired);
                        let step = patience.as_ref().map(|_| QueueStep::Expired);
                        if let Some(stay) = stay {
                            stay.end(step.unwrap_or(QueueStep::Drained));
                        }
                        let rejection = Box::pin(reject(Arc::clone(&plan), patience));
                        let left = Some((plan, request));
                        this.stage.set(QueuedCallStage::Left { rejection, left });
                        continue;
                    }
                },
                QueuedCallStageProjection::Left { rejection, left } => {
                    let rejection = ready!(rejection.as_mut().poll(cx));
                    let Some((plan, request)) = left.take() else { return Poll::Pending };
                    let response = render(&plan, &rejection, &Head::new(&request));
                    read_on(&plan, request);
                    return Poll::Ready(Ok(QueueExit::Rejected(response)));
                }
                QueuedCallStageProjection::Turn { turn } => turn,
            };
            let Some(held) = this.held.as_mut() else { return Poll::Pending };
            // Only after the turn: a service that was ready before would hold its resource during the
            // wait. Meanwhile the turn is kept, which delays no other waiter.
            match held.service.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    // Dropping both frees the slot and the room in the queue for other requests.
                    drop((turn.take(), this.held.take()));
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => return Poll::Pending,
            }
            let (Some(held), Some(pending)) = (this.held.take(), turn.take()) else {
                return Poll::Pending;
            };
            let WaitingRequest { mut service, mut request, since, plan, waiter } = held;
            let QueuedWaiter { limit, guard, ledger, stay, shadows, .. } = waiter;
            // Their answers are not waited for: the request runs at its instant.
            shadow::charge_beside(&plan, ledger.as_ref(), shadows);
            if let Some(ledger) = &ledger {
                ledger.outlive_resets(&pending);
                // Before the call, so that the handler finds its `Admission` and its meter in the
                // request.
                OnResponse::expose_ledger(ledger, &mut request);
            }
            let waited = since.elapsed();
            let (mut turn, ledger) = (CalledTurn(Some((pending, stay))), RunningLedger(ledger));
            let future = service.call(request);
            // After the call, so that the requests behind this one call the service after it.
            let used = turn.use_up();
            // The request was counted until here, so the bound of the queue includes those that
            // wait for the service.
            drop(guard);
            let timing = fields::server_timing(&limit, waited);
            let fields = used.filter(|_| plan.sends_fields).map(|used| {
                let levels = levels_at_turn(&plan, &used);
                if let Some(ledger) = &ledger.0 {
                    ledger.stand(&levels);
                }
                let members = levels.iter();
                let members = members.map(|(part, level)| (part.limit(), part.key(), *level));
                fields_of(&plan, members)
            });
            let on_response = OnResponse::new(fields, timing, ledger);
            return Poll::Ready(Ok(QueueExit::Called(future, on_response)));
        }
    }
}

/// The rejection of a request that has waited for as long as it may: what a new one would be told that
/// costs the same. Without patience, it has left because the limiter is drained.
async fn reject(plan: Arc<Plan>, patience: Option<Patience>) -> Rejection<'static> {
    let Some(Patience { demands, jitter, .. }) = patience else {
        plan.log.drained(plan.limit());
        return Rejection::Status(StatusCode::SERVICE_UNAVAILABLE, OutageHint::SOON.after);
    };
    match plan.limiter.look(&demands).await {
        Ok(outcome) => {
            let status = TOO_MANY;
            let refusal = Refusal { demands, outcome, status, jitter, by_limits: true };
            match plan.counts_refusals {
                true => lock_out::reject(plan, refusal).await,
                false => Rejection::Refused(refusal),
            }
        }
        Err(error) => Rejection::unavailable(&error),
    }
}
