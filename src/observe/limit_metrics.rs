//! The metrics of one limit, each registered when it is first used.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::metric::{
    DECISIONS, LATENESS, LIMIT, OUTCOME, QUEUED_REQUESTS, SOURCE, STEP, TIME_IN_QUEUE, TOKENS,
};
use super::recorder::{Registrar, registered};
use crate::limiter::{Decision, DecisionSource, Outcome, QueueChange, QueueStep};

/// The metrics of the limits of one name.
///
/// A handle of the facade is kept once it was used: to look it up by its labels would take longer
/// than the decision.
#[derive(Debug)]
pub(super) struct LimitMetrics {
    limit: Box<str>,
    decisions: [[OnceLock<Counter>; OUTCOMES]; SOURCES],
    tokens: [OnceLock<Counter>; SOURCES],
    queued: OnceLock<Gauge>,
    time_in_queue: [OnceLock<Histogram>; STEPS],
    lateness: OnceLock<Histogram>,
}

/// How many of each there are.
const OUTCOMES: usize = 10;
const SOURCES: usize = 3;
const STEPS: usize = 4;

impl LimitMetrics {
    pub(super) fn new(limit: &str) -> Self {
        let (decisions, tokens, queued, time_in_queue, lateness) = Default::default();
        Self { limit: limit.into(), decisions, tokens, queued, time_in_queue, lateness }
    }

    /// The name under which the limit is counted.
    pub(super) const fn name(&self) -> &str {
        &self.limit
    }

    pub(super) fn count(&self, decision: &Decision<'_>, registrar: &Registrar) {
        let (source, outcome) = (decision.source(), decision.outcome());
        let counters = self.decisions.get(source_index(source));
        if let Some(counter) = counters.and_then(|all| all.get(outcome_index(outcome))) {
            let register = || {
                let (source, outcome) = (source.name(), outcome.name());
                let labels = [(LIMIT, &*self.limit), (OUTCOME, outcome), (SOURCE, source)];
                registrar.counter(DECISIONS, &labels)
            };
            registered(counter, register).increment(1);
        }
        let taken = decision.taken();
        if taken > 0
            && let Some(counter) = self.tokens.get(source_index(source))
        {
            let labels = [(LIMIT, &*self.limit), (SOURCE, source.name())];
            registered(counter, || registrar.counter(TOKENS, &labels)).increment(taken);
        }
    }

    pub(super) fn change_queue(&self, change: &QueueChange<'_>, registrar: &Registrar) {
        let limit = [(LIMIT, &*self.limit)];
        let queued = registered(&self.queued, || registrar.gauge(QUEUED_REQUESTS, &limit));
        let step = change.step();
        let Some(index) = step_index(step) else { return queued.increment(1.0) };
        queued.decrement(1.0);
        if let Some(histogram) = self.time_in_queue.get(index) {
            let labels = [(LIMIT, &*self.limit), (STEP, step.name())];
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
pub(super) const fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

const fn source_index(source: DecisionSource) -> usize {
    match source {
        DecisionSource::Handler => 0,
        DecisionSource::Layer => 1,
        DecisionSource::Shadow => 2,
    }
}

const fn outcome_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Admitted => 0,
        Outcome::Reserved => 1,
        Outcome::Refused => 2,
        Outcome::NotTaken => 3,
        Outcome::TooLarge => 4,
        Outcome::QueueFull => 5,
        Outcome::Uncounted => 6,
        Outcome::Unavailable => 7,
        Outcome::NoKey => 8,
        Outcome::Exempt => 9,
    }
}

/// The index of a step that ends the wait; `None` for the one that begins it.
const fn step_index(step: QueueStep) -> Option<usize> {
    match step {
        QueueStep::Joined => None,
        QueueStep::Served => Some(0),
        QueueStep::Left => Some(1),
        QueueStep::Drained => Some(2),
        QueueStep::Kept => Some(3),
    }
}
