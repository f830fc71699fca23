//! An observer that writes down what it is told, a line for each event.

use std::sync::{Arc, Mutex};

use tollgate::limiter::{Decision, QueueChange, StoreAnswer, StoreFailure, StoreRecovery};
use tollgate::{Observer, RateLimiter};

/// What was told, a line for each event.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    /// Observes a handle of this limiter.
    pub fn of(limiter: &RateLimiter) -> (Self, RateLimiter) {
        let journal = Self::default();
        (journal.clone(), limiter.clone().observe(journal))
    }

    /// Takes what was written since this was last asked.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Observer for Journal {
    /// `handler login refused 1 after 60s *`, with a star if it stands for the request.
    fn on_decision(&self, decision: &Decision<'_>) {
        let (source, limit) = (decision.source().name(), decision.limit().name());
        let (outcome, cost) = (decision.outcome().name(), decision.cost());
        let wait = match decision.wait() {
            Some(wait) if !wait.is_zero() => format!(" after {wait:?}"),
            _ => String::new(),
        };
        let star = if decision.is_main() { " *" } else { "" };
        self.write(format!("{source} {limit} {outcome} {cost}{wait}{star}"));
    }

    /// `layer spaced served after 100ms, 0ns late`
    fn on_queue(&self, change: &QueueChange<'_>) {
        let (source, limit) = (change.source().name(), change.limit().name());
        let (step, waited) = (change.step().name(), change.waited());
        let late = change.lateness().map(|late| format!(", {late:?} late")).unwrap_or_default();
        self.write(format!("{source} {limit} {step} after {waited:?}{late}"));
    }

    fn on_store_answer(&self, answer: &StoreAnswer<'_>) {
        let said = if answer.error().is_none() { "decided" } else { "failed" };
        self.write(format!("store {said} in {:?}", answer.took()));
    }

    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        let (limit, kind) = (failure.limit().name(), failure.kind());
        let then = failure.on_failure().map_or("None".to_owned(), |then| format!("{then:?}"));
        let first = if failure.is_first() { " first" } else { "" };
        self.write(format!("store failed: {limit} {kind} {then}{first}"));
    }

    fn on_store_recovery(&self, recovery: &StoreRecovery<'_>) {
        let (admitted, refused) = (recovery.admitted(), recovery.refused());
        let limit = recovery.limit().name();
        self.write(format!("store recovered: {limit}, {admitted} admitted, {refused} refused"));
    }
}
