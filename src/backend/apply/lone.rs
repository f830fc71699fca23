//! One charge alone, as in nearly all calls: it needs no list.

use super::cell_store::{CellStore, read, write_first_use, write_refused};
use crate::algebra::{
    Charged, State, Units, Verdict, charge, charge_pair, charge_pair_slower, charge_slower,
};
use crate::backend::answer::Remarks;
use crate::backend::charge::Charge;
use crate::backend::record::{BucketRecord, Found};
use crate::clock::Timestamp;

/// Decides an ordinary charge, and stores what it leaves.
// Inlined, so that a store which has found the bucket already pays for the formula only.
#[inline(always)]
pub fn apply_one<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    asked: &Charge<'_>,
    now: Timestamp,
) -> (Charged, Remarks) {
    let bucket = asked.bucket();
    let found = cells.find(cell, asked.id(), bucket, now);
    if let Some(own) = found.kept(bucket) {
        return apply_slower(cells, cell, own, asked, now);
    }
    let state = read(cells, cell, &found, asked.id(), bucket, now);
    let charged = charge(bucket, state, asked.units(), asked.get_terms(), now);
    match charged.verdict() {
        Verdict::Admitted | Verdict::Reserved if is_stored_for(asked) => {
            cells.write(cell, bucket, charged.after(), now);
        }
        Verdict::Refused if asked.takes() => {
            write_refused(cells, cell, &found, bucket, charged.before(), now);
        }
        Verdict::Admitted | Verdict::Reserved | Verdict::Refused => {}
    }
    (charged, Remarks::NONE)
}

/// Decides a charge by numbers that refill more slowly than those in which the bucket is counted.
#[cold]
#[inline(never)]
fn apply_slower<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    own: &BucketRecord,
    asked: &Charge<'_>,
    now: Timestamp,
) -> (Charged, Remarks) {
    let (bucket, phase) = (asked.bucket(), asked.id().phase(asked.bucket()));
    let (units, terms) = (asked.units(), asked.get_terms());
    let charged = charge_slower(own.bucket(), own.state(), bucket, units, terms, now, phase);
    if charged.verdict() != Verdict::Refused && is_stored_for(asked) {
        cells.write(cell, bucket, charged.after(), now);
        return (charged, Remarks::NONE);
    }
    let mut kept = Remarks::NONE;
    kept.add(0, *own);
    (charged, kept)
}

/// Decides a two-choices charge, with `other` as the second shard, and stores what it leaves in
/// both.
#[inline]
pub(in crate::backend) fn apply_pair<C: CellStore>(
    cells: &mut C,
    shards: [C::Cell; 2],
    asked: &Charge<'_>,
    other: u32,
    now: Timestamp,
) -> (Charged<[State; 2]>, Remarks) {
    let (id, bucket) = (asked.id(), asked.bucket());
    let [first, second] = shards;
    let found =
        [cells.find(first, id, bucket, now), cells.find(second, id.shard(other), bucket, now)];
    let [one, two] = &found;
    let states = [
        read(cells, first, one, id, bucket, now),
        read(cells, second, two, id.shard(other), bucket, now),
    ];
    let charged = charge_two([one, two], states, asked, now);
    if charged.verdict() == Verdict::Refused {
        if asked.takes() {
            for ((cell, found), state) in shards.into_iter().zip(&found).zip(charged.before()) {
                write_refused(cells, cell, found, bucket, state, now);
            }
        }
    } else if is_stored_for(asked) {
        let left = charged.after().into_iter().zip(charged.paid());
        for ((cell, found), (state, paid)) in shards.into_iter().zip(&found).zip(left) {
            if paid > 0 {
                cells.write(cell, bucket, state, now);
            } else {
                write_first_use(cells, cell, found, bucket, state, now);
            }
        }
    }
    let mut kept = Remarks::NONE;
    for (nth, (cell, found)) in shards.into_iter().zip(found).enumerate() {
        if found.kept(bucket).is_some() {
            kept.note(nth, &cells.find(cell, id, bucket, now), bucket);
        }
    }
    (charged, kept)
}

/// Charges two shards by what a store has of them, and by their states in the numbers of the
/// charge.
pub(super) fn charge_two(
    found: [&Found; 2],
    states: [State; 2],
    asked: &Charge<'_>,
    now: Timestamp,
) -> Charged<[State; 2]> {
    let (bucket, units, terms) = (asked.bucket(), asked.units(), asked.get_terms());
    let [own, others] = found.map(|found| found.kept(bucket));
    if own.is_none() && others.is_none() {
        return charge_pair(bucket, states, units, terms, now);
    }
    let [state, others_state] = states;
    let shards = [(own, state), (others, others_state)]
        .map(|(own, state)| own.map_or((*bucket, state), |own| (*own.bucket(), own.state())));
    charge_pair_slower(shards, bucket, units, terms, now, asked.id().phase(bucket))
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
