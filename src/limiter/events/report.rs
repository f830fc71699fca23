//! Tells observers what became of a request: a decision for each of its limits.

#![cfg_attr(not(feature = "memory"), allow(dead_code, reason = "used for one bucket in memory"))]

use std::borrow::Borrow;
use std::time::Duration;

use smallvec::SmallVec;

use super::decision::{Decision, DecisionSource, Outcome};
use super::observers::Observers;
use crate::algebra::Verdict;
use crate::backend::Reading;
use crate::limiter::Limit;
use crate::limiter::complete_answer::CompleteAnswer;
use crate::limiter::demand::Demand;
use crate::limiter::rate_limited::RateLimited;
use crate::limiter::snapshot::wait_of;

/// The decisions about a request, which are told together: which of them is the main one is known
/// only when all of them are.
pub(crate) struct Report<'a> {
    source: DecisionSource,
    decisions: SmallVec<[Decision<'a>; 4]>,
}

impl<'a> Report<'a> {
    fn new(source: DecisionSource) -> Self {
        Self { source, decisions: SmallVec::new() }
    }

    /// One limit, for which the store was not asked.
    pub(crate) fn unasked(source: DecisionSource, limit: &'a Limit, outcome: Outcome) -> Self {
        Self::of_one(source, limit, 0, outcome, None)
    }

    /// Demands that the store has not decided.
    pub(crate) fn undecided<L: Borrow<Limit>>(
        source: DecisionSource,
        demands: &'a [Demand<L>],
        outcome: Outcome,
    ) -> Self {
        let mut report = Self::new(source);
        demands.iter().for_each(|one| report.add(one.limit(), one.cost, outcome, None));
        report
    }

    /// A complete answer of the store. If the request was denied, `denied` is the outcome of the
    /// limits that denied it.
    pub(crate) fn answered<L: Borrow<Limit>>(
        source: DecisionSource,
        demands: &'a [Demand<L>],
        answer: &'a CompleteAnswer,
        denied: Option<Outcome>,
    ) -> Self {
        let mut report = Self::new(source);
        let verdict = answer.verdict();
        for (demand, level) in answer.levels(demands) {
            let outcome = match (denied, level.verdict) {
                (None, Verdict::Reserved) => Outcome::Reserved,
                (None, _) => Outcome::Admitted,
                // As a refusal names them: those that say what the answer as a whole says.
                (Some(denied), own) if own == verdict => denied,
                (Some(_), _) => Outcome::NotTaken,
            };
            report.add(demand.limit(), demand.cost, outcome, level.wait);
        }
        report
    }

    /// One demand that its only bucket has answered.
    pub(crate) fn of_reading(
        source: DecisionSource,
        limit: &'a Limit,
        cost: u64,
        reading: &Reading,
    ) -> Self {
        let outcome = match reading.verdict() {
            Verdict::Admitted => Outcome::Admitted,
            Verdict::Reserved | Verdict::Refused => Outcome::Refused,
        };
        let wait = wait_of(limit, reading.verdict(), reading.wait());
        Self::of_one(source, limit, cost, outcome, wait)
    }

    fn of_one(
        source: DecisionSource,
        limit: &'a Limit,
        cost: u64,
        outcome: Outcome,
        wait: Option<Duration>,
    ) -> Self {
        let mut report = Self::new(source);
        report.add(limit, cost, outcome, wait);
        report
    }

    /// Demands of which one costs more than its limit can ever grant, alone or with those before it
    /// on the same buckets, or is on a limit that grants nothing.
    pub(crate) fn too_large<L: Borrow<Limit>>(
        source: DecisionSource,
        demands: &'a [Demand<L>],
        error: &RateLimited,
    ) -> Self {
        let outcome = if error.is_too_large() { Outcome::TooLarge } else { Outcome::Refused };
        let is_denied = |nth: usize, demand: &Demand<L>| {
            let is_before =
                |one: &&Demand<L>| one.limit() == demand.limit() && one.key == demand.key;
            let before = demands.iter().take(nth).filter(is_before);
            let all = before.fold(demand.cost, |all, one| all.saturating_add(one.cost));
            demand.limit() == error.limit() && [demand.cost, all].contains(&error.cost())
        };
        let mut denied = (demands.iter().enumerate()).position(|(nth, one)| is_denied(nth, one));
        let mut report = Self::new(source);
        for (nth, demand) in demands.iter().enumerate() {
            let is_it = denied.take_if(|denied| *denied == nth).is_some();
            let outcome = if is_it { outcome } else { Outcome::NotTaken };
            report.add(demand.limit(), demand.cost, outcome, None);
        }
        report
    }

    fn add(&mut self, limit: &'a Limit, cost: u64, outcome: Outcome, wait: Option<Duration>) {
        let source = self.source;
        self.decisions.push(Decision { limit, outcome, source, cost, wait, is_main: false });
    }

    /// Tells all decisions.
    pub(crate) fn tell(mut self, observers: &Observers) {
        let weight = |decision: &Decision<'_>| (decision.outcome.weight(), decision.wait);
        // Of equals the first, which is what `max_by_key` returns from the back.
        if let Some(main) = self.decisions.iter_mut().rev().max_by_key(|one| weight(one)) {
            main.is_main = true;
        }
        for decision in &self.decisions {
            observers.tell(|observer| observer.on_decision(decision));
        }
    }
}
