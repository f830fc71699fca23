//! The decision about a request: it runs, it waits, or it is rejected.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;

use super::ledger::RequestLedger;
use super::on_response::OnResponse;
use super::planned_rule::RuleLimit;
use super::rule::NoKey;
use super::waiter_counter::WaiterGuard;
use crate::backend::BackendError;
use crate::fields::OutageHint;
use crate::limiter::{CompleteAnswer, Demand, Limit, QueueStay, RateLimited, ReservedSlot};

/// What the rules demand for a request; most layers have one rule.
pub(super) type RuleDemands<'p> = SmallVec<[Demand<RuleLimit<'p>>; 1]>;

/// What a rule in shadow mode demands for a request.
pub(super) type Shadow = Demand<RuleLimit<'static>>;

/// The decision about a request, with the reason or the response if it is rejected.
pub(super) enum Action<R = Rejection<'static>> {
    Run(OnResponse),
    /// It waits for its turn, then runs.
    Queue(Box<QueuedSlot>),
    Reject(R),
    /// The store answers later.
    Pending(PendingAction),
}

pub(super) type PendingAction = Pin<Box<dyn Future<Output = Action> + Send>>;

/// Why a request is rejected. It is data, as rendering it takes the head of the request.
pub(super) enum Rejection<'p> {
    /// One or more limits refused it.
    Refused(Refusal<'p>),
    /// No wait helps, and the store was not asked: it costs more than a limit can ever grant, or a
    /// limit grants nothing.
    Unasked(RateLimited),
    /// Its key is missing or cannot be used.
    NoKey(NoKey),
    /// It gets this status, because the store failed or the limiter is drained. A 503 asks the
    /// client to retry after this time.
    Status(StatusCode, Duration),
}

pub(super) struct Refusal<'p> {
    pub(super) demands: RuleDemands<'p>,
    pub(super) outcome: CompleteAnswer,
    pub(super) status: StatusCode,
    /// Added to the wait.
    pub(super) jitter: Duration,
}

impl Refusal<'_> {
    /// The same without a lifetime, to be answered later.
    pub(super) fn into_static(self) -> Refusal<'static> {
        let Self { demands, outcome, status, jitter } = self;
        Refusal { demands: to_static(&demands), outcome, status, jitter }
    }
}

/// The slot of a request that waits.
pub(super) struct QueuedSlot {
    pub(super) booking: Box<dyn ReservedSlot>,
    pub(super) jitter: Duration,
    pub(super) waiter: QueuedWaiter,
}

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

impl Rejection<'_> {
    /// The store has not decided.
    pub(super) fn unavailable(error: &BackendError) -> Self {
        let after = error.retry_after().unwrap_or(OutageHint::SOON.after);
        Self::Status(StatusCode::SERVICE_UNAVAILABLE, after)
    }
}

/// The same demands without a lifetime, for an answer that comes later.
pub(super) fn to_static(demands: &[Demand<RuleLimit<'_>>]) -> RuleDemands<'static> {
    demands.iter().map(|demand| demand.with_limit(demand.limit.to_static())).collect()
}
