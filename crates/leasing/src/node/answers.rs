//! Questions for lots, and what comes of them.

use std::time::Duration;

use super::super::terms::{LeaseTerms, shortened, units};
use super::demand_meter::in_time;
use super::lot::Lot;
use super::{Hold, LeaseNode};
use tollgate::algebra::{State, Units};
use tollgate::clock::Timestamp;
use tollgate::kit::micros;

/// A question for a lot: charge so many units, if the floor is left then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LotQuestion {
    pub(crate) units: Units,
    /// When it was sent, by the clock of the node.
    pub(crate) sent: Timestamp,
    generation: u32,
}

/// What the store has answered to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LotAnswer {
    pub(crate) is_admitted: bool,
    /// What the bucket holds now.
    pub(crate) state: State,
    /// The time of the store.
    pub(crate) at: Timestamp,
    /// The wait of a refusal, if the bucket gains by faster numbers of before.
    pub(crate) wait: Option<Duration>,
}

/// The time of a trip to the store and back, with a margin.
const TRIP: u64 = 6_000;

/// Nodes that were refused come back within so many microseconds, and not all at once.
const SPREAD: u64 = 4_000;

/// The same at the start of a window.
const WINDOW_SPREAD: u64 = 2_000;

/// The shortest pause after a failure, and by how much a pause is longer at most.
const PAUSE: u64 = 20_000;
const PAUSE_SPREAD: u64 = 40_000;

/// By how much pauses grow at most.
const MAX_PAUSES: u64 = 16;

/// Lots are sized so that the line is longest with so many of them. A setting of quality, not of
/// the bound.
const LOTS_IN_LINE: u64 = 200;

impl LeaseNode {
    /// The question to send now, if a lot is needed. `is_short` says that a request was not paid.
    pub(crate) fn ask(
        &mut self,
        terms: &LeaseTerms,
        is_short: bool,
        now: Timestamp,
    ) -> Option<LotQuestion> {
        let is_held_back = self.quiet.wait(now).is_some() || self.back_off_until > now;
        if self.asking.is_some() || is_held_back || self.lots.next_start(now).is_some() {
            return None;
        }
        let demand = self.meter.demand_at(terms, now);
        if demand == 0 || self.meter.is_slow(terms, now) {
            return None;
        }
        // A question is sent when the lots that will still be alive then last for its trip.
        let ahead = self.expected_wait(terms, now).saturating_add(TRIP);
        if !is_short && self.lots.held_beyond(now.plus_micros(ahead)) > in_time(demand, ahead) {
            return None;
        }
        let wanted = in_time(demand, self.meter.span(terms)).min(self.largest_lot);
        let wanted = wanted.max(self.largest_cost).min(terms.largest_lot());
        let whole = wanted.saturating_sub(wanted.checked_rem(terms.token()).unwrap_or(0));
        if whole <= 0 {
            return None;
        }
        self.asking = Some(now);
        Some(LotQuestion { units: whole, sent: now, generation: self.generation })
    }

    /// Takes the answer to a question, which may be late.
    pub(crate) fn answer(
        &mut self,
        terms: &LeaseTerms,
        question: &LotQuestion,
        answer: &LotAnswer,
        now: Timestamp,
    ) {
        if question.generation != self.generation {
            return;
        }
        if self.asking == Some(question.sent) {
            self.asking = None;
        }
        (self.failures, self.back_off_until) = (0, super::LONG_AGO);
        self.note_time(answer.at, now);
        self.answered = now;
        if terms.is_window() {
            self.answer_in_window(terms, question, answer, now);
        } else {
            self.answer_in_line(terms, question, answer, now);
        }
    }

    /// A token bucket: lots queue between the level and the floor.
    fn answer_in_line(
        &mut self,
        terms: &LeaseTerms,
        question: &LotQuestion,
        answer: &LotAnswer,
        now: Timestamp,
    ) {
        let longest = terms.longest_wait();
        if !answer.is_admitted {
            self.last_wait = longest;
            self.largest_lot = (self.largest_lot / 2).max(self.largest_cost);
            let wanted = terms.floor().saturating_add(self.largest_lot);
            let wait = match answer.wait {
                Some(wait) => micros(wait),
                None => terms.time_to_gain(wanted.saturating_sub(answer.state.value)),
            };
            let wait = wait.saturating_add(self.draw(SPREAD.min(longest)));
            self.quiet = Hold::new(now, wait, terms);
            return;
        }
        let wait = terms.time_to_gain(terms.level().saturating_sub(answer.state.value));
        self.last_wait = wait;
        // All nodes see the same line, so they arrive at the same size, and take turns.
        let line = terms.gain_in(longest);
        let place = wait.max(longest / (LOTS_IN_LINE.saturating_mul(2))).max(1);
        let goal = u128::from(line.unsigned_abs())
            .saturating_mul(u128::from(longest))
            .checked_div(u128::from(place).saturating_mul(u128::from(LOTS_IN_LINE)))
            .unwrap_or(0);
        let middle = goal.saturating_mul(u128::from(self.largest_lot.unsigned_abs())).isqrt();
        let middle = units(u64::try_from(middle).unwrap_or(u64::MAX));
        self.largest_lot = middle.clamp(terms.token(), line.max(terms.token()));
        let void = question.sent.plus_micros(terms.safe_life());
        self.start_lot(terms, question, answer, (now.plus_micros(wait), void), now);
    }

    /// A fixed window: first come, first served, until it ends.
    fn answer_in_window(
        &mut self,
        terms: &LeaseTerms,
        question: &LotQuestion,
        answer: &LotAnswer,
        now: Timestamp,
    ) {
        self.last_wait = 0;
        self.largest_lot = (answer.state.value / 16).max(self.largest_cost);
        let end = answer.state.ts.plus_micros(terms.limit().step());
        let left = end.micros_since(answer.at);
        if answer.is_admitted {
            // Counted from the instant of the question, so the lot ends before the window does.
            let life = shortened(left).min(terms.safe_life());
            let void = question.sent.plus_micros(life);
            self.start_lot(terms, question, answer, (now, void), now);
        } else if answer.state.value < self.largest_cost {
            let wait = answer.wait.map_or(left, micros);
            let wait = wait.saturating_add(self.draw(WINDOW_SPREAD));
            self.quiet = Hold::new(now, wait, terms);
        }
    }

    fn start_lot(
        &mut self,
        terms: &LeaseTerms,
        question: &LotQuestion,
        answer: &LotAnswer,
        (start, void): (Timestamp, Timestamp),
        now: Timestamp,
    ) {
        if void <= start || void <= now {
            return;
        }
        self.look_after = terms.look_every();
        let (left, sent, charged) = (question.units, question.sent, answer.state);
        self.lots.drop_void(now);
        self.lots.push(Lot {
            left,
            start,
            void,
            sent,
            charged,
            first_paid: None,
            is_first_shared: false,
        });
    }

    /// A question has failed, or was not answered by its deadline. Its tokens count as taken.
    pub(crate) fn fail(&mut self, question: &LotQuestion, now: Timestamp) {
        if question.generation != self.generation || self.asking != Some(question.sent) {
            return;
        }
        self.asking = None;
        self.failures = self.failures.saturating_add(1);
        // Little is at risk until an answer comes.
        self.largest_lot = (self.largest_lot / 4).max(self.largest_cost);
        let times = 1_u64.checked_shl(self.failures).unwrap_or(MAX_PAUSES).min(MAX_PAUSES);
        let pause = PAUSE.saturating_add(self.draw(PAUSE_SPREAD)).saturating_mul(times);
        self.back_off_until = now.plus_micros(pause);
    }

    /// The store has refused a single request.
    pub(crate) fn deny(&mut self, terms: &LeaseTerms, cost: Units, wait: u64, now: Timestamp) {
        self.denied = Hold::new(now, wait, terms);
        self.denied_cost = cost;
    }

    /// Takes the time of the store from an answer.
    pub(crate) fn note_time(&mut self, at: Timestamp, now: Timestamp) {
        self.offset = at.as_micros().saturating_sub(now.as_micros());
    }
}

#[cfg(test)]
impl LeaseNode {
    /// A question of any size, needed or not.
    pub(crate) fn ask_for(&mut self, units: Units, now: Timestamp) -> LotQuestion {
        self.asking = Some(now);
        LotQuestion { units, sent: now, generation: self.generation }
    }
}
