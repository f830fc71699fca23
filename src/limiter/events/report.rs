//! Tells observers what became of a request: a decision for each of its limits.

use std::borrow::Borrow;
use std::time::Duration;

use smallvec::SmallVec;

use super::decision::{Decision, DecisionSource, Outcome};
use super::observers::Observers;
use crate::algebra::Verdict;
use crate::limiter::Limit;
use crate::limiter::complete_answer::CompleteAnswer;
use crate::limiter::demand::Demand;
use crate::limiter::grant::Grant;
use crate::limiter::permit::Permit;
use crate::limiter::rate_limited::RateLimited;

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
        let mut report = Self::new(source);
        report.add(limit, 0, outcome, None);
        report
    }

    /// The same outcome for all limits that were asked, each with its cost.
    pub(crate) fn alike(
        source: DecisionSource,
        asked: impl Iterator<Item = (&'a Limit, u64)>,
        outcome: Outcome,
    ) -> Self {
        let mut report = Self::new(source);
        let wait = outcome.is_taken().then_some(Duration::ZERO);
        asked.for_each(|(limit, cost)| report.add(limit, cost, outcome, wait));
        report
    }

    /// The answer to a call that takes.
    pub(crate) fn of_call(
        asked: impl Iterator<Item = (&'a Limit, u64)>,
        answer: Result<&Permit<'_>, &RateLimited>,
    ) -> Self {
        match answer {
            Ok(permit) if permit.is_decided() => {
                Self::alike(DecisionSource::Handler, asked, Outcome::Admitted)
            }
            Ok(_) => Self::alike(DecisionSource::Handler, asked, Outcome::Uncounted),
            Err(error) => Self::failed(DecisionSource::Handler, asked, error),
        }
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

    /// What a request was granted of each limit, now or later.
    pub(crate) fn granted<'g, L>(
        source: DecisionSource,
        grants: impl Iterator<Item = &'g Grant<L>>,
    ) -> Self
    where
        L: Borrow<Limit> + 'g,
        'g: 'a,
    {
        let mut report = Self::new(source);
        for grant in grants {
            let (level, is_later) = (grant.level(), grant.wait() > Duration::ZERO);
            let outcome = if is_later { Outcome::Reserved } else { Outcome::Admitted };
            report.add(grant.limit(), level.cost, outcome, level.wait);
        }
        report
    }

    /// The error of a call on these limits.
    pub(crate) fn failed(
        source: DecisionSource,
        asked: impl Iterator<Item = (&'a Limit, u64)>,
        error: &RateLimited,
    ) -> Self {
        if error.is_unavailable() {
            return Self::alike(source, asked, Outcome::Unavailable);
        }
        let mut report = Self::new(source);
        // The limits that denied are a part of those that were asked, in the same order.
        let mut denied = error.snapshots().iter().map(|one| (one.limit(), one.wait())).peekable();
        let mut too_large = error.is_too_large().then(|| error.limit());
        for (limit, cost) in asked {
            if too_large.take_if(|one| one.name() == limit.name()).is_some() {
                report.add(limit, cost, Outcome::TooLarge, None);
            } else if let Some((_, wait)) = denied.next_if(|(one, _)| one.name() == limit.name()) {
                report.add(limit, cost, Outcome::Refused, wait);
            } else {
                report.add(limit, cost, Outcome::NotTaken, None);
            }
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
