//! The metrics of one limit, each registered when it is first used.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::metric::{
    DECISIONS, LATENESS, LIMIT, OUTCOME, QUEUED_REQUESTS, SOURCE, STEP, TIME_IN_QUEUE, TOKENS,
};
use super::recorder::{Registrar, registered};
use tollgate::limiter::{Decision, Outcome, QueueChange};

/// The metrics of the limits of one name.
///
/// A handle of the facade is kept once it was used: to look it up by its labels would take longer
/// than the decision.
#[derive(Debug)]
pub(crate) struct LimitMetrics {
    limit: Box<str>,
    decisions: [[OnceLock<Counter>; Outcome::COUNT]; Decision::<'static>::SOURCES],
    tokens: [OnceLock<Counter>; Decision::<'static>::SOURCES],
    queued: OnceLock<Gauge>,
    time_in_queue: [OnceLock<Histogram>; QueueChange::<'static>::STEPS],
    lateness: OnceLock<Histogram>,
}

impl LimitMetrics {
    pub(crate) fn new(limit: &str) -> Self {
        let (decisions, tokens, queued, time_in_queue, lateness) = Default::default();
        Self { limit: limit.into(), decisions, tokens, queued, time_in_queue, lateness }
    }

    /// The name under which the limit is counted.
    pub(crate) const fn name(&self) -> &str {
        &self.limit
    }

    pub(crate) fn count(&self, decision: &Decision<'_>, registrar: &Registrar) {
        let (source, outcome) = (decision.source(), decision.outcome());
        let counters = self.decisions.get(decision.source_index());
        if let Some(counter) = counters.and_then(|all| all.get(outcome.index())) {
            let register = || {
                let labels = [(LIMIT, &*self.limit), (OUTCOME, outcome.name()), (SOURCE, source)];
                registrar.counter(DECISIONS, &labels)
            };
            registered(counter, register).increment(1);
        }
        let taken = decision.taken();
        if taken > 0
            && let Some(counter) = self.tokens.get(decision.source_index())
        {
            let labels = [(LIMIT, &*self.limit), (SOURCE, source)];
            registered(counter, || registrar.counter(TOKENS, &labels)).increment(taken);
        }
    }

    pub(crate) fn change_queue(&self, change: &QueueChange<'_>, registrar: &Registrar) {
        let limit = [(LIMIT, &*self.limit)];
        let queued = registered(&self.queued, || registrar.gauge(QUEUED_REQUESTS, &limit));
        if change.has_joined() {
            return queued.increment(1.0);
        }
        queued.decrement(1.0);
        if let Some(histogram) = self.time_in_queue.get(change.step_index()) {
            let labels = [(LIMIT, &*self.limit), (STEP, change.step())];
            let histogram = registered(histogram, || registrar.histogram(TIME_IN_QUEUE, &labels));
            histogram.record(seconds(change.waited()));
        }
        if let Some(lateness) = change.lateness() {
            let histogram = registered(&self.lateness, || registrar.histogram(LATENESS, &limit));
            histogram.record(seconds(lateness));
        }
    }
}

/// A duration as the facade takes it.
pub(crate) const fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
