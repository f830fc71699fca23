//! One charge alone, as in nearly all calls: it needs no list.

use super::cell_store::{CellStore, write_first_use, write_refused};
use crate::algebra::{Charged, ChargedPair, Units, Verdict, charge, charge_pair};
use crate::backend::charge::Charge;
use crate::clock::Timestamp;

/// Decides an ordinary charge, and stores what it leaves.
// Inlined, so that a store which has found the bucket already pays for the formula only.
#[inline(always)]
pub(in crate::backend) fn apply_one<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    asked: &Charge<'_>,
    now: Timestamp,
) -> Charged {
    let bucket = asked.bucket();
    let state = cells.read(cell, asked.id(), bucket, now);
    let charged = charge(bucket, state, asked.units(), asked.get_terms(), now);
    match charged.verdict() {
        Verdict::Admitted | Verdict::Reserved if is_stored_for(asked) => {
            cells.write(cell, bucket, charged.after(), now);
        }
        Verdict::Refused if asked.takes() => {
            write_refused(cells, cell, asked.id(), bucket, charged.before(), now);
        }
        Verdict::Admitted | Verdict::Reserved | Verdict::Refused => {}
    }
    charged
}

/// Decides a two-choices charge, with `other` as the second shard, and stores what it leaves in
/// both.
#[inline]
pub(in crate::backend) fn apply_pair<C: CellStore>(
    cells: &mut C,
    [first, second]: [C::Cell; 2],
    asked: &Charge<'_>,
    other: u32,
    now: Timestamp,
) -> ChargedPair {
    let (id, bucket) = (asked.id(), asked.bucket());
    let states =
        [cells.read(first, id, bucket, now), cells.read(second, id.shard(other), bucket, now)];
    let charged = charge_pair(bucket, states, asked.units(), asked.get_terms(), now);
    if charged.verdict() == Verdict::Refused {
        if asked.takes() {
            for (cell, state) in [first, second].into_iter().zip(charged.before()) {
                write_refused(cells, cell, id, bucket, state, now);
            }
        }
    } else if is_stored_for(asked) {
        let left = [first, second].into_iter().zip(charged.after()).zip(charged.paid());
        for ((cell, state), paid) in left {
            if paid > 0 {
                cells.write(cell, bucket, state, now);
            } else {
                write_first_use(cells, cell, id, bucket, state, now);
            }
        }
    }
    charged
}

/// Whether a charge that is not refused may have to store something. A look and a cost of zero take
/// nothing, but a bucket that starts below its capacity begins to fill with its first use, whatever
/// that takes.
#[inline]
pub(super) fn is_stored_for(charge: &Charge<'_>) -> bool {
    charge.takes() && (charge.units() != 0 || !charge.bucket().is_droppable_when_full())
}

/// Whether a bucket that has paid so many units has to be stored. A shard of a two-choices charge
/// may pay nothing.
#[inline]
pub(super) const fn has_paid(charge: &Charge<'_>, units: Units) -> bool {
    units != 0 || charge.get_second_shard().is_none()
}
