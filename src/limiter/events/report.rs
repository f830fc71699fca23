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

impl Observers {
    /// Tells of a complete answer of the store. If the request was denied, `denied` is the outcome of
    /// the limits that denied it.
    pub(crate) fn tell_answer<L: Borrow<Limit>>(
        &self,
        source: DecisionSource,
        demands: &[Demand<L>],
        answer: &CompleteAnswer,
        denied: Option<Outcome>,
    ) {
        let verdict = answer.verdict();
        let decisions = answer.levels(demands).map(|(demand, level)| {
            let outcome = match (denied, level.verdict) {
                (None, Verdict::Reserved) => Outcome::Reserved,
                (None, _) => Outcome::Admitted,
                // As a refusal names them: those that say what the answer as a whole says.
                (Some(denied), own) if own == verdict => denied,
                (Some(_), _) => Outcome::NotTaken,
            };
            (demand.limit(), demand.cost, outcome, level.wait)
        });
        self.tell_request(source, decisions);
    }

    /// Tells of one demand that its only bucket has answered.
    pub(crate) fn tell_reading(
        &self,
        source: DecisionSource,
        limit: &Limit,
        cost: u64,
        reading: &Reading,
    ) {
        let outcome = match reading.verdict() {
            Verdict::Admitted => Outcome::Admitted,
            Verdict::Reserved | Verdict::Refused => Outcome::Refused,
        };
        let wait = wait_of(limit, reading.verdict(), reading.wait());
        self.tell_decision(&Decision { limit, outcome, source, cost, wait, is_main: true });
    }

    /// Tells of demands of which one costs more than its limit can ever grant, alone or with those
    /// before it on the same buckets, or is on a limit that grants nothing.
    pub(crate) fn tell_too_large<L: Borrow<Limit>>(
        &self,
        source: DecisionSource,
        demands: &[Demand<L>],
        error: &RateLimited,
    ) {
        let is_denied = |nth: usize, demand: &Demand<L>| {
            let is_before =
                |one: &&Demand<L>| one.limit() == demand.limit() && one.key == demand.key;
            let before = demands.iter().take(nth).filter(is_before);
            let all = before.fold(demand.cost, |all, one| all.saturating_add(one.cost));
            demand.limit() == error.limit() && [demand.cost, all].contains(&error.cost())
        };
        let denied = (demands.iter().enumerate()).position(|(nth, one)| is_denied(nth, one));
        let decisions = demands.iter().enumerate().map(|(nth, demand)| {
            let outcome = if Some(nth) == denied { error.kind() } else { Outcome::NotTaken };
            (demand.limit(), demand.cost, outcome, None)
        });
        self.tell_request(source, decisions);
    }

    /// Tells of all limits of a request, each with its cost, outcome and wait. Together, as which of
    /// the decisions is the main one is known only when all of them are.
    pub(crate) fn tell_request<'a>(
        &self,
        source: DecisionSource,
        limits: impl Iterator<Item = (&'a Limit, u64, Outcome, Option<Duration>)>,
    ) {
        let decisions = limits.map(|(limit, cost, outcome, wait)| {
            let is_main = false;
            Decision { limit, outcome, source, cost, wait, is_main }
        });
        let mut decisions: SmallVec<[Decision<'_>; 4]> = decisions.collect();
        let weight = |decision: &Decision<'_>| (decision.outcome.weight(), decision.wait);
        // Of equals the first, which is what `max_by_key` returns from the back.
        if let Some(main) = decisions.iter_mut().rev().max_by_key(|one| weight(one)) {
            main.is_main = true;
        }
        decisions.iter().for_each(|decision| self.tell_decision(decision));
    }

    fn tell_decision(&self, decision: &Decision<'_>) {
        self.tell(|observer| observer.on_decision(decision));
    }
}
