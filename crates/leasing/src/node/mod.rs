//! What a node knows of one leased bucket, and what it decides: a state machine without time,
//! tasks or a network of its own.
//!
//! # Design
//!
//! ```text
//! decide(cost, now)      -> paid from a lot, refused until an instant, or the store has to say
//! ask(now)               -> the question for the next lot, if one is needed
//! answer(.., now), fail  <- what came of a question
//! give_back(now)         -> what is not needed any more
//! next_look(now)         -> when to ask that again if no request comes
//! ```
//!
//! `now` is the time of the node's own clock, of which only the rate matters. A driver sends what
//! the node says, and tells it what came of it. The simulation of the tests does the same in
//! virtual time.

mod answers;
mod demand_meter;
mod lot;
mod returns;

use self::demand_meter::DemandMeter;
use self::lot::Lots;
use super::terms::LeaseTerms;
use tollgate::algebra::Units;
use tollgate::clock::Timestamp;

pub(super) use self::answers::{LotAnswer, LotQuestion};
pub(super) use self::returns::{LotReturn, PermitReturn};

/// One bucket, as a node sees it.
#[derive(Clone, Debug)]
pub(super) struct LeaseNode {
    lots: Lots,
    meter: DemandMeter,
    /// When the question under way was sent.
    asking: Option<Timestamp>,
    /// Answers to questions of earlier generations are not used.
    generation: u32,
    /// How long the last lot had to wait for its start.
    last_wait: u64,
    /// The largest question that this node asks at the moment.
    largest_lot: Units,
    largest_cost: Units,
    /// No question, and no tokens, until then.
    quiet: Hold,
    back_off_until: Timestamp,
    failures: u32,
    /// The store has refused this cost.
    denied: Hold,
    denied_cost: Units,
    answered: Timestamp,
    /// The time of the store less that of this node.
    offset: i64,
    /// The latest time of the store that was reckoned.
    reckoned: Timestamp,
    /// When a lot last paid, by the time of the store.
    last_paid: Option<Timestamp>,
    /// When the lots were last looked at, and how long after that they are again.
    looked: Timestamp,
    look_after: u64,
    dice: u64,
}

/// How long something holds.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// What callers are told.
    until: Timestamp,
    /// When the store is asked again. It may have changed its mind, after a reset, say.
    check: Timestamp,
}

impl Hold {
    const NONE: Self = Self { until: LONG_AGO, check: LONG_AGO };

    fn new(now: Timestamp, micros: u64, terms: &LeaseTerms) -> Self {
        let check = now.plus_micros(micros.min(terms.life()));
        Self { until: now.plus_micros(micros), check }
    }

    fn wait(&self, now: Timestamp) -> Option<u64> {
        (self.check > now).then(|| self.until.micros_since(now))
    }
}

const LONG_AGO: Timestamp = Timestamp::from_micros(i64::MIN);

/// What a node says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseDecision {
    /// The lots have paid, and hold this much.
    Paid { left: Units },
    /// Tokens may be there after so many microseconds.
    Refused { wait: u64 },
    /// The store has to decide about this request by itself.
    Single,
    /// The answer to a question decides. The driver has to ask, unless a question is under way.
    Wait,
    /// The store did not answer lately.
    Failing,
}

impl LeaseNode {
    pub(super) fn new(terms: &LeaseTerms, now: Timestamp, dice: u64) -> Self {
        let largest_lot = match terms.is_window() {
            true => terms.store().capacity() / 8,
            false => terms.gain_in(terms.longest_wait()),
        };
        Self {
            lots: Lots::default(),
            meter: DemandMeter::new(now),
            asking: None,
            generation: 0,
            last_wait: 0,
            largest_lot,
            largest_cost: terms.token(),
            quiet: Hold::NONE,
            back_off_until: LONG_AGO,
            failures: 0,
            denied: Hold::NONE,
            denied_cost: 0,
            answered: LONG_AGO,
            offset: 0,
            reckoned: LONG_AGO,
            last_paid: None,
            looked: LONG_AGO,
            look_after: terms.look_every(),
            dice,
        }
    }

    /// Decides about a new request, and says whether a slot is over. Then [`ask`](Self::ask) may have
    /// a question and [`give_back`](Self::give_back) something to return. If the request was not
    /// paid, `ask` may have a question as well.
    #[inline]
    pub(super) fn decide(
        &mut self,
        terms: &LeaseTerms,
        cost: Units,
        now: Timestamp,
    ) -> (LeaseDecision, bool) {
        let is_slot_over = self.meter.count(cost, now);
        if is_slot_over {
            self.meter.fold(terms, now);
        }
        (self.decide_again(terms, cost, now), is_slot_over)
    }

    /// Decides about a request that has been counted.
    #[inline]
    pub(super) fn decide_again(
        &mut self,
        terms: &LeaseTerms,
        cost: Units,
        now: Timestamp,
    ) -> LeaseDecision {
        let at = self.store_time(now);
        match self.lots.pay(cost, now, at, self.last_paid) {
            Some(left) => {
                self.last_paid = Some(at);
                LeaseDecision::Paid { left }
            }
            None => self.decide_unpaid(terms, cost, now),
        }
    }

    fn decide_unpaid(&mut self, terms: &LeaseTerms, cost: Units, now: Timestamp) -> LeaseDecision {
        if let Some(wait) = self.denied.wait(now).filter(|_| cost >= self.denied_cost) {
            return LeaseDecision::Refused { wait };
        }
        let is_failing = self.back_off_until > now;
        if cost > terms.large() || self.meter.is_slow(terms, now) {
            return if is_failing { LeaseDecision::Failing } else { LeaseDecision::Single };
        }
        self.largest_cost = self.largest_cost.max(cost);
        if let Some(start) = self.lots.next_start(now) {
            return LeaseDecision::Refused { wait: start.micros_since(now) };
        }
        if let Some(wait) = self.quiet.wait(now) {
            return LeaseDecision::Refused { wait };
        }
        if self.asking.is_none() && is_failing {
            return LeaseDecision::Failing;
        }
        match self.expected_wait(terms, now) {
            0 => LeaseDecision::Wait,
            wait => LeaseDecision::Refused { wait },
        }
    }

    /// How long the next lot will have to wait for its start, going by the last one.
    fn expected_wait(&self, terms: &LeaseTerms, now: Timestamp) -> u64 {
        if now.micros_since(self.answered) > terms.life() { 0 } else { self.last_wait }
    }

    /// The time of the store, reckoned from its last answer. It never goes back.
    #[inline]
    pub(super) fn store_time(&mut self, now: Timestamp) -> Timestamp {
        let time = Timestamp::from_micros(now.as_micros().saturating_add(self.offset));
        self.reckoned = self.reckoned.max(time);
        self.reckoned
    }

    /// The start of the window of the lots.
    pub(super) fn window(&self) -> Option<Timestamp> {
        self.lots.window()
    }

    /// What the lots hold that run.
    pub(super) fn held(&self, now: Timestamp) -> Units {
        self.lots.held(now)
    }

    /// Whether a question is under way.
    pub(super) const fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// When a lot last paid, by the time of the store.
    pub(super) const fn last_paid(&self) -> Option<Timestamp> {
        self.last_paid
    }

    /// Whether there are lots that are not void.
    pub(super) fn has_lots(&mut self, now: Timestamp) -> bool {
        self.lots.drop_void(now);
        !self.lots.is_empty()
    }

    /// Whether nothing would be lost if the node forgot this bucket.
    pub(super) fn is_idle(&mut self, terms: &LeaseTerms, now: Timestamp) -> bool {
        let is_free = self.asking.is_none() && !self.has_lots(now) && self.back_off_until <= now;
        let holds = self.denied.wait(now).is_some() || self.quiet.wait(now).is_some();
        is_free && !holds && self.meter.is_slow(terms, now)
    }

    /// Drops all lots and what the store has said before: the bucket was changed by a reset, a
    /// block, or other numbers. An answer that is under way is not used either.
    pub(super) fn forget(&mut self) {
        self.lots.clear();
        self.generation = self.generation.wrapping_add(1);
        self.asking = None;
        (self.quiet, self.denied) = (Hold::NONE, Hold::NONE);
        self.last_wait = 0;
    }

    /// Ends a slot although no request came, so that demand which has ended is seen.
    pub(super) fn tick(&mut self, terms: &LeaseTerms, now: Timestamp) {
        // The longer no request comes, the less there is to see.
        self.look_after = match self.meter.has_counted_since(self.looked) {
            true => terms.look_every(),
            false => terms.next_pause(self.look_after),
        };
        self.looked = now;
        self.meter.fold(terms, now);
    }

    /// A random number from zero to `most`, which spreads nodes (SplitMix64).
    fn draw(&mut self, most: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.dice ^ (self.dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = u128::from(z ^ (z >> 31)).saturating_mul(u128::from(most).saturating_add(1));
        u64::try_from(drawn >> 64).unwrap_or(most)
    }
}
