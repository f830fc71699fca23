//! Several adjustments at once: all of them or none.
//!
//! # Design
//!
//! An adjustment does not change the numbers of a bucket of which some is used: it is no request by
//! its own. So it is converted to those in which the bucket is counted.

use super::cell_store::{CellStore, read};
use crate::algebra::{State, Verdict};
use crate::backend::adjustment::Adjustment;
use crate::backend::answer::{Applied, Reading, Remarks};
use crate::backend::record::Found;
use crate::clock::Timestamp;

/// Makes all adjustments, or none of them if a bucket does not allow one.
pub fn adjust_list<C: CellStore>(
    cells: &mut C,
    named: &[(C::Cell, &Adjustment<'_>)],
    now: Timestamp,
) -> Applied {
    if let &[(cell, one)] = named {
        let found = cells.find(cell, one.id(), one.bucket(), now);
        if !matches!(found, Found::Other(_)) {
            let state = read(cells, cell, &found, one.id(), one.bucket(), now);
            let allowed = one.is_allowed(state, now);
            let after = match allowed {
                true => adjust_own(cells, cell, one, &found, state, now),
                false => state,
            };
            return Applied::one(now, reading(one, allowed, after, now));
        }
    }
    let mut conditional = named.iter().filter(|(_, one)| one.is_conditional());
    let allowed = conditional.all(|&(cell, one)| {
        let found = cells.find(cell, one.id(), one.bucket(), now);
        match &found {
            Found::Other(own) => one.convert_to(own, now).is_allowed(own.state(), now),
            found => one.is_allowed(read(cells, cell, found, one.id(), one.bucket(), now), now),
        }
    });
    if allowed {
        for &(cell, one) in named {
            let found = cells.find(cell, one.id(), one.bucket(), now);
            if let Found::Other(own) = &found {
                let after = one.convert_to(own, now).apply_to(own.state(), now);
                cells.write(cell, own.bucket(), after, now);
            } else {
                let state = read(cells, cell, &found, one.id(), one.bucket(), now);
                adjust_own(cells, cell, one, &found, state, now);
            }
        }
    }
    // Read again, because a bucket that is named twice is reported as it is in the end.
    let mut kept = Remarks::NONE;
    let readings = named.iter().enumerate().map(|(nth, &(cell, one))| {
        let found = cells.find(cell, one.id(), one.bucket(), now);
        let state = read(cells, cell, &found, one.id(), one.bucket(), now);
        kept.note(nth, &found, one.bucket());
        reading(one, allowed, state, now)
    });
    let applied = Applied::collect(now, named.len(), readings);
    applied.with_remarks(kept)
}

/// Makes one adjustment to a bucket that is counted in its numbers, or absent. Returns its state
/// afterwards.
fn adjust_own<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    one: &Adjustment<'_>,
    found: &Found,
    state: State,
    now: Timestamp,
) -> State {
    // An absent bucket has no room for a refund, and storing it would change no answer.
    if !one.takes() && found.is_absent() {
        return state;
    }
    let after = one.apply_to(state, now);
    cells.write(cell, one.bucket(), after, now);
    after
}

fn reading(one: &Adjustment<'_>, allowed: bool, state: State, now: Timestamp) -> Reading {
    let verdict = if allowed { Verdict::Admitted } else { Verdict::Refused };
    Reading::in_micros(verdict, one.bucket().refresh(state, now), 0, 0)
}
