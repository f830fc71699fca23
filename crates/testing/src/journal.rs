//! An observer that writes down what it is told, a line for each event.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::limiter::{Decision, Limit, QueueChange, StoreHealth};
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
        let (source, limit) = (decision.source(), decision.limit().name());
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
        let (source, limit) = (change.source(), change.limit().name());
        let (step, waited) = (change.step(), change.waited());
        let late = change.lateness().map(|late| format!(", {late:?} late")).unwrap_or_default();
        self.write(format!("{source} {limit} {step} after {waited:?}{late}"));
    }

    fn on_block(&self, limit: &Limit, time: Duration) {
        self.write(format!("{} blocked for {time:?}", limit.name()));
    }

    fn on_store(&self, health: &StoreHealth<'_>) {
        self.write(match *health {
            StoreHealth::Answer { took, error, .. } => {
                let said = if error.is_none() { "decided" } else { "failed" };
                format!("store {said} in {took:?}")
            }
            StoreHealth::Failure { limit, error, on_failure, is_first, .. } => {
                let (limit, kind) = (limit.name(), error.kind());
                let then = on_failure.map_or("None".to_owned(), |then| format!("{then:?}"));
                let first = if is_first { " first" } else { "" };
                format!("store failed: {limit} {kind} {then}{first}")
            }
            StoreHealth::Recovery { limit, admitted, refused, .. } => {
                let limit = limit.name();
                format!("store recovered: {limit}, {admitted} admitted, {refused} refused")
            }
            _ => return,
        });
    }
}
