//! What is done with a request: it runs, it waits, or it is rejected.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use smallvec::SmallVec;

use super::body::RefusalText;
use super::ledger::RequestLedger;
use super::missing_key::NoKey;
use super::on_response::OnResponse;
use super::places::WaiterPlace;
use super::planned_rule::Choice;
use crate::limiter::{Booking, Demand, Outcome, RateLimited};

/// What is demanded for a request by the rules; mostly by one.
pub(super) type RuleDemands<'p> = SmallVec<[Demand<Choice<'p>>; 1]>;

/// What is done with a request.
pub(super) enum Action<'p> {
    Run(OnResponse),
    /// It waits for its turn, and runs then.
    Queue(Box<QueuedSlot>),
    Reject(Rejection<'p>),
}

/// What is done with a request whose head is at hand: if it is rejected, the answer has its words.
pub(super) enum Step {
    Run(OnResponse),
    Queue(Box<QueuedSlot>),
    Answer(Response<RefusalText>),
    Pending(PendingAction),
}

/// An action, or a future of one.
pub(super) enum ActionStep<'p> {
    Ready(Action<'p>),
    Pending(PendingAction),
}

pub(super) type PendingAction = Pin<Box<dyn Future<Output = Action<'static>> + Send>>;

/// Why a request is rejected. Data: it is worded where the request's head is at hand.
pub(super) enum Rejection<'p> {
    /// Limits have refused it.
    Refused(Refusal<'p>),
    /// It costs more than a limit can ever grant.
    TooLarge(RateLimited),
    /// Its key is missing or cannot be used.
    NoKey(NoKey),
    /// It is answered with this status: the store failed, the limiter is drained.
    Status(StatusCode),
}

pub(super) struct Refusal<'p> {
    pub(super) demands: RuleDemands<'p>,
    pub(super) outcome: Outcome,
    pub(super) status: StatusCode,
    /// What makes the wait longer.
    pub(super) jitter: Duration,
}

/// A slot that was reserved for a request.
pub(super) struct QueuedSlot {
    pub(super) booking: Booking,
    pub(super) place: WaiterPlace,
    pub(super) jitter: Duration,
    pub(super) ledger: Option<Arc<RequestLedger>>,
}

impl Action<'_> {
    pub(super) const fn reject(status: StatusCode) -> Self {
        Self::Reject(Rejection::Status(status))
    }

    /// The ledger of a request that goes on.
    pub(super) fn ledger(&self) -> Option<&RequestLedger> {
        match self {
            Self::Run(on_response) => on_response.ledger(),
            Self::Queue(slot) => slot.ledger.as_deref(),
            Self::Reject(_) => None,
        }
    }
}

/// The same demands, for an answer that comes later.
pub(super) fn to_static(demands: &[Demand<Choice<'_>>]) -> RuleDemands<'static> {
    demands.iter().map(|demand| demand.with_limit(demand.limit.to_static())).collect()
}
