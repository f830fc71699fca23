//! Several adjustments at once: all of them or none.

use super::cell_store::CellStore;
use crate::algebra::{State, Verdict};
use crate::backend::adjustment::Adjustment;
use crate::backend::answer::{Applied, Reading};
use crate::clock::Timestamp;

/// Makes all adjustments, or none of them if a bucket does not allow one.
pub(in crate::backend) fn adjust_list<C: CellStore>(
    cells: &mut C,
    named: &[(C::Cell, &Adjustment<'_>)],
    now: Timestamp,
) -> Applied {
    if let &[(cell, one)] = named {
        let state = cells.read(cell, one.id(), one.bucket(), now);
        let allowed = one.is_allowed(state, now);
        let after = if allowed { adjust_one(cells, cell, one, state, now) } else { state };
        return Applied::one(now, reading(one, allowed, after, now));
    }
    let mut conditional = named.iter().filter(|(_, one)| one.is_conditional());
    let allowed = conditional.all(|&(cell, one)| {
        let state = cells.read(cell, one.id(), one.bucket(), now);
        one.is_allowed(state, now)
    });
    if allowed {
        for &(cell, one) in named {
            let state = cells.read(cell, one.id(), one.bucket(), now);
            let _ = adjust_one(cells, cell, one, state, now);
        }
    }
    // Read again, because a bucket that is named twice is reported as it is in the end.
    let readings = named.iter().map(|&(cell, one)| {
        let state = cells.read(cell, one.id(), one.bucket(), now);
        reading(one, allowed, state, now)
    });
    Applied::collect(now, named.len(), readings)
}

/// Makes one adjustment to a bucket in this state, and returns its state afterwards.
fn adjust_one<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    one: &Adjustment<'_>,
    state: State,
    now: Timestamp,
) -> State {
    // An absent bucket has no room for a refund, and storing it would change no answer.
    if !one.takes() && !cells.is_stored(cell, one.id(), one.bucket(), now) {
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
