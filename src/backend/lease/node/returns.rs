//! Tokens that go back: those that a node does not need, and those of permits.

use super::super::terms::LeaseTerms;
use super::LeaseNode;
use super::demand_meter::in_time;
use crate::algebra::{State, Units};
use crate::clock::Timestamp;

/// Part of a lot that goes back to the store, which credits it less what it has gained since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend::lease) struct LotReturn {
    pub(in crate::backend::lease) units: Units,
    /// As [`Adjustment::refund_since`](crate::backend::Adjustment::refund_since) takes it.
    pub(in crate::backend::lease) since: State,
}

/// Where the tokens of a permit go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend::lease) enum PermitReturn {
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
    pub(in crate::backend::lease) fn give_back(
        &mut self,
        terms: &LeaseTerms,
        now: Timestamp,
    ) -> Option<LotReturn> {
        let demand = self.meter.demand_at(terms, now);
        let span = self.meter.span(terms).saturating_mul(2);
        let smallest = self.largest_cost.max(terms.store().capacity() / WORTH_A_TRIP);
        self.lots.drop_void(now);
        for lot in self.lots.iter_mut() {
            let rest = lot.void.micros_since(now);
            let is_last = rest <= LAST;
            let needed = if is_last { 0 } else { in_time(demand, span.min(rest)) };
            let spare = lot.left.saturating_sub(needed).max(0);
            let spare = spare.saturating_sub(spare.checked_rem(terms.token()).unwrap_or(0));
            let gained = terms.gain_in(now.micros_since(lot.sent).saturating_add(TRIP));
            let least = smallest.max(gained.saturating_mul(2));
            let least = if is_last { least } else { least.max(lot.left / 2) };
            if spare > 0 && spare >= least && rest > TRIP {
                lot.left = lot.left.saturating_sub(spare);
                return Some(LotReturn::new(terms, spare, lot.charged.ts));
            }
        }
        None
    }

    /// Takes back tokens of a permit, which had left the bucket as `origin` when it was paid.
    ///
    /// Tokens never go to a lot that was charged after they were: they would live longer than
    /// their charge, and the bound would not hold. `forgotten` is the last time at which a lot has
    /// paid that this node may not remember.
    pub(in crate::backend::lease) fn take_back(
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
    pub(in crate::backend::lease) fn return_to_store(
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

    /// Returns tokens at once, since the request that they were for was not admitted. They were
    /// paid by the lots at `paid`, and still have the life of the lot that paid.
    pub(in crate::backend::lease) fn put_back(
        &mut self,
        terms: &LeaseTerms,
        units: Units,
        origin: State,
        now: Timestamp,
    ) {
        // Lost tokens are lost for the length of a life only.
        let _ = self.take_back(terms, units, origin, None, now);
    }

    /// Takes units whatever there is: first from the lots. Returns what the store has to take.
    pub(in crate::backend::lease) fn penalize(&mut self, units: Units) -> Units {
        units.saturating_sub(self.lots.drain(units))
    }
}

#[cfg(test)]
impl LeaseNode {
    /// Takes up to so many units off the lot of this number and returns them, needed or not.
    pub(in crate::backend::lease) fn give_back_any(
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
    pub(in crate::backend::lease) fn return_to_any(
        &mut self,
        units: Units,
        now: Timestamp,
    ) -> bool {
        self.lots.drop_void(now);
        let lot = self.lots.iter_mut().next_back();
        lot.map(|lot| lot.left += units).is_some()
    }
}
