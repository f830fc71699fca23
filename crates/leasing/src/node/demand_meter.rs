//! How much a node is asked for, averaged over the last decisions.

use super::super::terms::LeaseTerms;
use tollgate::algebra::Units;
use tollgate::clock::Timestamp;

/// Averages of what is asked for here, refused requests included.
///
/// A decision only adds to two counts. They are folded into the averages at the end of each slot,
/// some milliseconds long.
#[derive(Clone, Debug)]
pub(super) struct DemandMeter {
    /// Units a second.
    demand: u64,
    /// Thousandths of a decision a second.
    frequency: u64,
    slot_start: Timestamp,
    slot_end: Timestamp,
    units: u64,
    decisions: u64,
}

/// The longest slot.
const MAX_SLOT: u64 = 2_000;

/// A hundredth of a life is a slot, if that is less than the longest one.
const SLOTS_IN_LIFE: u64 = 100;

/// The shortest time over which demand is averaged.
const MIN_AVERAGE: u64 = 60_000;

/// Demand is averaged over so many decisions, if they take neither too short nor too long.
const DECISIONS_IN_AVERAGE: u64 = 40;

/// A lot should last for so many decisions.
const DECISIONS_IN_LOT: u64 = 1_200;

/// With fewer decisions than these in half a life, lots do not pay.
const MIN_DECISIONS: u64 = 6;

const SECOND: u64 = 1_000_000;
const THOUSANDTHS: u64 = 1_000;

impl DemandMeter {
    pub(super) const fn new(now: Timestamp) -> Self {
        let (demand, frequency, units, decisions) = (0, 0, 0, 0);
        Self { demand, frequency, slot_start: now, slot_end: now, units, decisions }
    }

    /// Counts a decision. Returns whether the slot is over.
    #[inline]
    pub(super) fn count(&mut self, units: Units, now: Timestamp) -> bool {
        self.units = self.units.saturating_add(units.max(0).unsigned_abs());
        self.decisions = self.decisions.saturating_add(1);
        self.slot_end <= now
    }

    /// Whether it has counted anything since a slot was ended at this instant.
    pub(super) fn has_counted_since(&self, ended: Timestamp) -> bool {
        self.decisions > 0 || self.slot_start != ended
    }

    /// Ends the slot.
    pub(super) fn fold(&mut self, terms: &LeaseTerms, now: Timestamp) {
        self.demand = self.demand_at(terms, now);
        self.frequency = self.frequency_at(terms, now);
        (self.units, self.decisions) = (0, 0);
        self.slot_start = now;
        self.slot_end = now.plus_micros((terms.life() / SLOTS_IN_LIFE).min(MAX_SLOT));
    }

    /// Units a second, with those of this slot.
    pub(super) fn demand_at(&self, terms: &LeaseTerms, now: Timestamp) -> u64 {
        let over = self.short_average(terms);
        average(self.demand, self.units.saturating_mul(SECOND), self.passed(now), over)
    }

    /// Thousandths of a decision a second, with those of this slot.
    fn frequency_at(&self, terms: &LeaseTerms, now: Timestamp) -> u64 {
        let decided = self.decisions.saturating_mul(SECOND).saturating_mul(THOUSANDTHS);
        average(self.frequency, decided, self.passed(now), long_average(terms))
    }

    /// Whether there are too few decisions for lots.
    pub(super) fn is_slow(&self, terms: &LeaseTerms, now: Timestamp) -> bool {
        // Refusals come here by the million, so the usual case needs no division.
        let enough = MIN_DECISIONS.saturating_mul(THOUSANDTHS).saturating_mul(SECOND);
        let before = self.frequency.saturating_mul(terms.life() / 2);
        if before / 2 >= enough && self.passed(now) < MIN_AVERAGE / 2 {
            return false;
        }
        let half = u128::from(terms.life() / 2);
        let decisions = u128::from(self.frequency_at(terms, now)).saturating_mul(half);
        decisions < u128::from(enough)
    }

    /// How long a lot should last: some 1,200 decisions, between one and three eighths of a life.
    pub(super) fn span(&self, terms: &LeaseTerms) -> u64 {
        let eighth = terms.life() / 8;
        self.time_of(DECISIONS_IN_LOT).clamp(eighth, eighth.saturating_mul(3))
    }

    fn passed(&self, now: Timestamp) -> u64 {
        now.micros_since(self.slot_start)
    }

    /// Over how long demand is averaged.
    fn short_average(&self, terms: &LeaseTerms) -> u64 {
        let least = (terms.life() / 8).max(MIN_AVERAGE);
        least.max(self.time_of(DECISIONS_IN_AVERAGE)).min(long_average(terms))
    }

    /// How long so many decisions take.
    fn time_of(&self, decisions: u64) -> u64 {
        let time = decisions.saturating_mul(THOUSANDTHS).saturating_mul(SECOND);
        time.checked_div(self.frequency).unwrap_or(u64::MAX)
    }
}

fn long_average(terms: &LeaseTerms) -> u64 {
    (terms.life() / 4).max(MIN_AVERAGE)
}

/// The average over a time `over`, after `passed` of it had `more` in all.
fn average(before: u64, more: u64, passed: u64, over: u64) -> u64 {
    if passed >= over {
        return more.checked_div(passed).unwrap_or(0);
    }
    let kept = u128::from(before).saturating_mul(u128::from(over.saturating_sub(passed)));
    let sum = kept.saturating_add(u128::from(more));
    u64::try_from(sum.checked_div(u128::from(over)).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The units that such a demand takes in so many microseconds.
pub(super) fn in_time(demand: u64, micros: u64) -> Units {
    let units = u128::from(demand).saturating_mul(u128::from(micros)) / 1_000_000;
    Units::try_from(units).unwrap_or(Units::MAX)
}
