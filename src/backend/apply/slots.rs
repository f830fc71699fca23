//! Several charges at once on buckets that are known, as nearly all are: no entries are kept for them.

use smallvec::SmallVec;

use super::lone::{has_paid, is_stored_for};
use crate::algebra::{State, Units, Verdict, charge, charge_pair};
use crate::backend::answer::{Applied, Reading};
use crate::backend::charge::Charge;
use crate::backend::repeats::SHORT;
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// Buckets that one call reads and writes in their slots, and no other call meanwhile.
pub(in crate::backend) trait SlotStore {
    /// What tells one bucket from another in this call.
    type Cell: Copy;

    /// Where a bucket is, as long as none is added or removed.
    type Slot: Copy + Eq;

    /// The slot of a bucket, and what is stored there; `None` if the bucket is not stored in the numbers
    /// of the charge, or if the charge may go into debt, which concerns more than a slot.
    fn find(&self, cell: Self::Cell, charge: &Charge<'_>) -> Option<(Self::Slot, State)>;

    /// Stores the state of the bucket in this slot.
    fn keep(&mut self, slot: Self::Slot, state: State);
}

/// Takes all charges, of a list as that of [`apply_list`](super::apply_list), if each bucket has a slot,
/// is named once, and has what is asked of it. If not, nothing is stored, and `apply_list` decides.
#[inline(always)]
pub(in crate::backend) fn take_list<S: SlotStore>(
    slots: &mut S,
    named: &[(S::Cell, &Charge<'_>)],
    mark: ResetMark,
    now: Timestamp,
) -> Option<Applied> {
    if named.len() > SHORT {
        return None;
    }
    let mut taken: SmallVec<[(S::Slot, State, Units); SHORT]> = SmallVec::new();
    while let Some(&(cell, asked)) = named.get(taken.len()) {
        let (bucket, units, terms) = (asked.bucket(), asked.units(), asked.get_terms());
        let (slot, state) = slots.find(cell, asked)?;
        let verdict = match asked.get_second_shard() {
            None => {
                let charged = charge(bucket, state, units, terms, now);
                taken.push((slot, charged.after(), units.max(0)));
                charged.verdict()
            }
            Some(_) => {
                let &(cell, _) = named.get(taken.len().saturating_add(1))?;
                let (other, other_state) = slots.find(cell, asked)?;
                let charged = charge_pair(bucket, [state, other_state], units, terms, now);
                let ([first, second], [pays, other_pays]) = (charged.after(), charged.paid());
                taken.push((slot, first, pays));
                taken.push((other, second, other_pays));
                charged.verdict()
            }
        };
        if verdict != Verdict::Admitted || !asked.takes() {
            return None;
        }
    }
    let mut rest = taken.as_slice();
    while let [(slot, ..), after @ ..] = rest {
        if after.iter().any(|(other, ..)| other == slot) {
            return None;
        }
        rest = after;
    }
    for (&(_, charge), &(slot, left, units)) in named.iter().zip(&taken) {
        if is_stored_for(charge) && has_paid(charge, units) {
            slots.keep(slot, left);
        }
    }
    let reading = |&(_, left, units): &(S::Slot, State, Units)| {
        Reading::in_micros(Verdict::Admitted, left, units, 0).marked(mark)
    };
    Some(Applied::collect(now, taken.len(), taken.iter().map(reading)))
}
