//! Charges rules that decide and log, but refuse nothing.

use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::ledger::RequestLedger;
use super::log::{WOULD_BE, log_refusal, log_unasked};
use super::plan::Plan;
use super::planned_rule::Shadow;
use crate::algebra::Verdict;
use crate::backend::Answer;
use crate::limiter::{Asked, Asking, Decided, DecisionSource, Demand, DetachOnDrop, OnFailure};

/// The rest of some shadows, whose store has not answered at once.
type PendingShadows = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Charges shadows, each on its own. With a store that answers at once, as in memory, no future is
/// made for them.
pub(super) fn charge(
    plan: &Arc<Plan>,
    ledger: Option<&Arc<RequestLedger>>,
    shadows: Vec<Shadow>,
) -> Option<PendingShadows> {
    let mut rest = shadows.into_iter();
    let asking = Asking { refunds_dropped: plan.settings.refunds_dropped, ..ASKING };
    while let Some(mut shadow) = rest.next() {
        let pending = match plan.limiter.ask(slice::from_mut(&mut shadow), asking) {
            Asked::Decided(decided) => {
                record(ledger, &shadow, decided);
                continue;
            }
            Asked::Pending(pending) => pending,
        };
        let (plan, ledger) = (Arc::clone(plan), ledger.cloned());
        return Some(Box::pin(async move {
            let decided = plan.limiter.decided(slice::from_ref(&shadow), asking, pending.await);
            record(ledger.as_ref(), &shadow, decided);
            if let Some(rest) = charge(&plan, ledger.as_ref(), rest.collect()) {
                rest.await;
            }
        }));
    }
    None
}

/// Charges shadows for a request that runs meanwhile. A task awaits a store that answers later.
pub(super) fn charge_beside(
    plan: &Arc<Plan>,
    ledger: Option<&Arc<RequestLedger>>,
    shadows: Vec<Shadow>,
) {
    let is_in_flight = shadows.iter().any(Demand::is_in_flight);
    if let Some(rest) = charge(plan, ledger, shadows) {
        if let Some(ledger) = ledger.filter(|_| is_in_flight) {
            // The store may answer after the response has begun.
            ledger.expect_in_flight();
        }
        let charging = async move {
            rest.await;
            Ok(())
        };
        drop(DetachOnDrop::new(Answer::pending(charging)));
    }
}

const ASKING: Asking = Asking::take(DecisionSource::Shadow, OnFailure::Admit);

fn record(ledger: Option<&Arc<RequestLedger>>, shadow: &Shadow, decided: Decided) {
    match decided {
        // The handler can see a refusal, and reset its bucket.
        Decided::Admitted(answer) | Decided::Refused { answer, .. } => {
            if answer.verdict() == Verdict::Refused {
                let retry_after = answer.retry_after(slice::from_ref(shadow), Duration::ZERO);
                log_refusal(shadow.limit(), retry_after, WOULD_BE);
            }
            if let Some(ledger) = ledger {
                ledger.add_shadow(shadow, &answer);
            }
        }
        Decided::TooLarge(error) => {
            log_unasked(&error, WOULD_BE);
            if let Some(ledger) = ledger {
                ledger.add_refusals(shadow.limit.rule, &error);
            }
        }
        // A shadow takes what is there, and waits for nothing; and it decides about no request.
        Decided::Reserved(..) | Decided::Uncounted | Decided::Failed(_) => {}
    }
}
