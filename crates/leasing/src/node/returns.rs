//! Tokens that go back: those that a node does not need, and those of permits.

use super::super::terms::LeaseTerms;
use super::LeaseNode;
use super::demand_meter::in_time;
use super::lot::Lot;
use tollgate::algebra::{State, Units};
use tollgate::clock::Timestamp;

/// Part of a lot that goes back to the store, which credits it less what it has gained since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LotReturn {
    pub(crate) units: Units,
    /// As [`Adjustment::refund_since`](tollgate::backend::Adjustment::refund_since) takes it.
    pub(crate) since: State,
}

/// Where the tokens of a permit go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitReturn {
    /// They are in the lot that has paid.
    Lot,
    /// To the store, less what it has gained since.
    Store(LotReturn),
    /// The lot that has paid is void: the refill has replaced them, or will.
    Lost,
}

/// The end of a lot: what is left then goes back at once, if it is worth a trip.
const LAST: u64 = 8_000;

/// A give-back takes so long to arrive.
const TRIP: u64 = 2_000;

/// A give-back is at least this part of the bucket.
const WORTH_A_TRIP: Units = 4_000;

impl LotReturn {
    /// A return of units that were charged at `charged`. The store takes off what it has gained
    /// since, and no more.
    pub(super) fn new(terms: &LeaseTerms, units: Units, charged: Timestamp) -> Self {
        let value = terms.store().capacity().saturating_sub(units);
        Self { units, since: State { value, ts: charged } }
    }
}

impl LeaseNode {
    /// Takes off its lots what is not needed, if at least half of it would count at the store. The
    /// driver sends it once.
    pub(crate) fn give_back(&mut self, terms: &LeaseTerms, now: Timestamp) -> Option<LotReturn> {
        let demand = self.meter.demand_at(terms, now);
        let span = self.meter.span(terms).saturating_mul(2);
        let smallest = self.smallest_return(terms);
        self.lots.drop_void(now);
        for lot in self.lots.iter_mut() {
            let rest = lot.void.micros_since(now);
            let is_last = rest <= LAST;
            let needed = if is_last { 0 } else { in_time(demand, span.min(rest)) };
            let spare = lot.left.saturating_sub(needed).max(0);
            let spare = spare.saturating_sub(spare.checked_rem(terms.token()).unwrap_or(0));
            let least = least_return(terms, lot, smallest, now);
            let least = if is_last { least } else { least.max(lot.left / 2) };
            if spare > 0 && spare >= least && rest > TRIP {
                lot.left = lot.left.saturating_sub(spare);
                return Some(LotReturn::new(terms, spare, lot.charged.ts));
            }
        }
        None
    }

    /// When to look again at what goes back, if no request comes before; `None` if nothing will.
    ///
    /// As long as no tokens come to a lot, it holds less and less, and what a give-back has to be
    /// grows.
    pub(crate) fn next_look(&mut self, terms: &LeaseTerms, now: Timestamp) -> Option<Timestamp> {
        self.lots.drop_void(now);
        let smallest = self.smallest_return(terms);
        let may_go_back = |lot: &mut Lot| lot.left >= least_return(terms, lot, smallest, now);
        let any = self.lots.iter_mut().any(may_go_back);
        any.then(|| now.plus_micros(self.look_after))
    }

    /// A give-back of less is not worth a trip.
    fn smallest_return(&self, terms: &LeaseTerms) -> Units {
        self.largest_cost.max(terms.store().capacity() / WORTH_A_TRIP)
    }

    /// Takes back tokens of a permit, which had left the bucket as `origin` when it was paid.
    ///
    /// Tokens never go to a lot that was charged after they were: they would live longer than
    /// their charge, and the bound would not hold. `forgotten` is the last time at which a lot has
    /// paid that this node may not remember.
    pub(crate) fn take_back(
        &mut self,
        terms: &LeaseTerms,
        units: Units,
        origin: State,
        forgotten: Option<Timestamp>,
        now: Timestamp,
    ) -> PermitReturn {
        if terms.is_window() {
            // All lots and charges of a window are alike: what comes back can be used until it ends.
            let is_of_window = |charged: State| charged.ts == origin.ts;
            self.lots.drop_void(now);
            let same = self.lots.iter_mut().find(|lot| is_of_window(lot.charged));
            if let Some(lot) = same {
                lot.left = lot.left.saturating_add(units);
                return PermitReturn::Lot;
            }
            return PermitReturn::Store(LotReturn::new(terms, units, origin.ts));
        }
        // What was paid after the last lot began to pay was paid by that lot, or by the store at a
        // later time than that of the lot's charge.
        let paid = origin.ts;
        if let Some(lot) = self.lots.last_to_pay(now)
            && lot.has_begun_before(paid)
        {
            lot.left = lot.left.saturating_add(units);
            return PermitReturn::Lot;
        }
        Self::return_to_store(terms, units, origin, self.last_paid.max(forgotten))
    }

    /// Where tokens of a permit go that no lot takes back. `last_paid` is when a lot last paid: what
    /// was paid after that was charged at the store, at that very time.
    pub(crate) fn return_to_store(
        terms: &LeaseTerms,
        units: Units,
        origin: State,
        last_paid: Option<Timestamp>,
    ) -> PermitReturn {
        match last_paid {
            Some(last) if origin.ts <= last && !terms.is_window() => PermitReturn::Lost,
            _ => PermitReturn::Store(LotReturn::new(terms, units, origin.ts)),
        }
    }

    /// Takes units whatever there is: first from the lots. Returns what the store has to take.
    pub(crate) fn penalize(&mut self, units: Units, now: Timestamp) -> Units {
        self.lots.drop_void(now);
        units.saturating_sub(self.lots.drain(units))
    }
}

/// What part of a lot has to be to go back: half of it would count at the store.
fn least_return(terms: &LeaseTerms, lot: &Lot, smallest: Units, now: Timestamp) -> Units {
    let gained = terms.gain_in(now.micros_since(lot.sent).saturating_add(TRIP));
    smallest.max(gained.saturating_mul(2))
}

#[cfg(test)]
impl LeaseNode {
    /// Takes up to so many units off the lot of this number and returns them, needed or not.
    pub(crate) fn give_back_any(
        &mut self,
        terms: &LeaseTerms,
        nth: usize,
        units: Units,
    ) -> Option<LotReturn> {
        let lot = self.lots.iter_mut().nth(nth)?;
        let units = units.min(lot.left);
        lot.left -= units;
        Some(LotReturn::new(terms, units, lot.charged.ts))
    }

    /// Adds units to any lot, as no node may do.
    pub(crate) fn return_to_any(&mut self, units: Units, now: Timestamp) -> bool {
        self.lots.drop_void(now);
        let lot = self.lots.iter_mut().next_back();
        lot.map(|lot| lot.left += units).is_some()
    }
}
