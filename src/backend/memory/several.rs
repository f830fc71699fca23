//! Reservations, adjustments and resets of several buckets, under the locks of their shards.

use std::sync::Arc;

use smallvec::SmallVec;

use super::fingerprint::{Fingerprint, Hasher};
use super::lock_set::LockSet;
use super::shards::Shards;
use super::waiter::{LinePlace, LineTicket, LineWaiter};
use crate::algebra::{Bucket, Units, Verdict};
use crate::backend::adjustment::{Adjustment, Change, convert_units};
use crate::backend::answer::{Applied, Reading};
use crate::backend::apply::{CellStore as _, adjust_list, apply_list};
use crate::backend::charge::{BucketId, Charge};
use crate::backend::repeats::Repeats;
use crate::clock::Timestamp;

/// The fingerprint of each bucket of each charge.
pub(super) fn fingerprint_all<'c>(
    hasher: &Hasher,
    charges: &'c [Charge<'c>],
) -> SmallVec<[(Fingerprint, &'c Charge<'c>); 8]> {
    let ids = charges.iter().flat_map(|charge| charge.ids().map(move |id| (id, charge)));
    ids.map(|(id, charge)| (fingerprint_of(hasher, id), charge)).collect()
}

/// Not inlined, because a loop would first copy all keys of the hasher to the stack.
#[inline(never)]
pub(super) fn fingerprint_of(hasher: &Hasher, id: BucketId<'_>) -> Fingerprint {
    hasher.fingerprint(id)
}

/// Makes all adjustments, or none of them.
pub(super) fn adjust_all(
    shards: &Shards,
    hasher: &Hasher,
    adjustments: &[Adjustment<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let mut named = SmallVec::<[_; 8]>::new();
    for adjustment in adjustments {
        named.push((hasher.fingerprint(adjustment.id()), adjustment));
    }
    let mut locks = LockSet::lock(shards, named.iter().map(|&(print, _)| print));
    let applied = adjust(&mut locks, &named, now());
    locks.unlock();
    applied
}

/// Forgets all these buckets, in one step.
pub(super) fn forget_all(
    shards: &Shards,
    hasher: &Hasher,
    ids: &[BucketId<'_>],
    now: impl FnOnce() -> Timestamp,
) {
    let mut prints = SmallVec::<[_; 8]>::new();
    ids.iter().for_each(|&id| prints.push(hasher.fingerprint(id)));
    let mut locks = LockSet::lock(shards, prints.iter().copied());
    let now = now();
    for &print in &prints {
        if let Some(shard) = locks.shard(print) {
            shard.record_reset(print);
        }
    }
    // Every shard records its resets first. Then all shards take one mark that is after all of
    // them.
    let _same_for_all = locks.mark();
    for (&print, &id) in prints.iter().zip(ids) {
        if let Some(shard) = locks.shard(print) {
            shard.forget(print, id, now);
        }
    }
    locks.unlock();
}

/// Takes all charges, into debt if need be, or none of them. If a bucket goes into debt, the
/// request joins its line.
pub(super) fn reserve_all(
    shards: &Shards,
    hasher: &Hasher,
    charges: &[Charge<'_>],
    waiter: impl FnOnce() -> Arc<LineWaiter>,
    now: impl FnOnce() -> Timestamp,
) -> (Applied, Option<LineTicket>) {
    let named = fingerprint_all(hasher, charges);
    let mut locks = LockSet::lock(shards, named.iter().map(|&(print, _)| print));
    let now = now();
    // What is due leaves the line first, so that the newcomer is not taken for one of several.
    locks.grant_all(&named, now);
    // Adding one bucket may evict another one. None of this call's may go before its line exists.
    let several = if named.len() > 1 { named.as_slice() } else { &[] };
    for &(print, _) in several {
        if let Some(shard) = locks.shard(print) {
            shard.begin_work(print.tag());
        }
    }
    let applied = apply_list(&mut locks, &named, now).with_mark(locks.mark());
    // The waiter joins under the locks of the decision, so no other request gets in between.
    let ticket = (applied.verdict() == Verdict::Reserved)
        .then(|| enter_all(&mut locks, &named, applied.readings(), waiter(), now));
    for &(print, _) in several {
        if let Some(shard) = locks.shard(print) {
            shard.end_work();
        }
    }
    locks.unlock();
    (applied, ticket)
}

/// Puts a waiter at the end of the line of each bucket that went into debt.
fn enter_all(
    locks: &mut LockSet<'_>,
    named: &[(Fingerprint, &Charge<'_>)],
    readings: &[Reading],
    waiter: Arc<LineWaiter>,
    now: Timestamp,
) -> LineTicket {
    let (mut places, mut is_alone) = (SmallVec::<[LinePlace; 1]>::new(), true);
    for (&(print, charge), reading) in named.iter().zip(readings) {
        // A cost of zero takes nothing, so nothing was stored. But its wait is by the quota of this
        // charge, so the bucket has to count by that.
        if charge.units() <= 0 && reading.state().value < 0 {
            locks.write(print, charge.bucket(), reading.state(), now);
        }
    }
    for (print, units) in buckets_in_debt(named, readings) {
        let entered =
            locks.shard(print).and_then(|shard| shard.enter(print.tag(), units, &waiter, now));
        if let Some((ticket, is_first)) = entered {
            places.push(LinePlace { print, ticket });
            is_alone &= is_first;
        }
    }
    if places.len() > 1 {
        is_alone = false;
        for &LinePlace { print, .. } in &places {
            if let Some(shard) = locks.shard(print) {
                shard.need_timer(print.tag());
            }
        }
    }
    // A change of the quota may have moved the waiters before it forward.
    locks.grant_all(named, now);
    LineTicket { waiter, places, is_alone }
}

/// The buckets that went into debt for a reservation, each once, with the units that they paid, in
/// the quota of the last charge on each.
pub(super) fn buckets_in_debt(
    named: &[(Fingerprint, &Charge<'_>)],
    readings: &[Reading],
) -> SmallVec<[(Fingerprint, Units); 4]> {
    let mut debts = SmallVec::<[(Fingerprint, &Bucket, Units); 4]>::new();
    let repeats = Repeats::find(named.iter().map(|(print, _)| *print));
    // The place of each bucket in `debts`.
    let mut places = SmallVec::<[Option<usize>; 8]>::from_elem(None, named.len());
    for (nth, (&(print, charge), reading)) in named.iter().zip(readings).enumerate() {
        let (bucket, units) = (charge.bucket(), reading.units());
        let first = first_place(&repeats, named, nth);
        let known = places.get(first).copied().flatten();
        match known.and_then(|place| debts.get_mut(place)) {
            Some((_, counted_in, all)) => {
                *all = convert_units(*all, counted_in, bucket).saturating_add(units);
                *counted_in = bucket;
            }
            None if reading.state().value < 0 && waits_for(nth, named, readings) => {
                if let Some(place) = places.get_mut(first) {
                    *place = Some(debts.len());
                }
                debts.push((print, bucket, units));
            }
            None => {}
        }
    }
    debts.into_iter().map(|(print, _, units)| (print, units)).collect()
}

/// The first place at which the bucket of the `nth` charge is named.
fn first_place<T>(repeats: &Repeats, named: &[(Fingerprint, T)], nth: usize) -> usize {
    let print = |place: usize| named.get(place).map(|&(print, _)| print);
    repeats.first(nth, |earlier| print(earlier) == print(nth))
}

/// Whether a charge has to wait for this bucket. Of two shards these are the ones that pay, or the
/// fuller one if the charge costs nothing.
fn waits_for(nth: usize, named: &[(Fingerprint, &Charge<'_>)], readings: &[Reading]) -> bool {
    let (Some((_, charge)), Some(reading)) = (named.get(nth), readings.get(nth)) else {
        return false;
    };
    if reading.units() > 0 || charge.get_second_shard().is_none() {
        return true;
    }
    if charge.units() > 0 {
        return false;
    }
    // The two shards of a charge stand next to each other. Of equal ones the first counts as the
    // fuller.
    let is_same =
        |other: usize| named.get(other).is_some_and(|(_, one)| std::ptr::eq(*one, *charge));
    let value = |other: usize| readings.get(other).map(|reading| reading.state().value);
    match nth.checked_sub(1).filter(|&before| is_same(before)) {
        Some(first) => value(first) < value(nth),
        None => value(nth) >= value(nth.saturating_add(1)),
    }
}

/// Makes all adjustments, or none of them. Waiters get what comes back. What a reset has forgiven
/// does not come back.
fn adjust(
    locks: &mut LockSet<'_>,
    named: &[(Fingerprint, &Adjustment<'_>)],
    now: Timestamp,
) -> Applied {
    if !locks.have_resets() {
        return adjust_owed(locks, named, now);
    }
    let mut has_forgiven = |&(print, one): &(Fingerprint, &Adjustment<'_>)| {
        locks.shard(print).is_some_and(|shard| shard.has_forgiven(print, one))
    };
    if !named.iter().any(&mut has_forgiven) {
        return adjust_owed(locks, named, now);
    }
    let owed: SmallVec<[Adjustment<'_>; 4]> = named
        .iter()
        .map(|named| match has_forgiven(named) {
            true => named.1.with_change(named.1.change().returning_nothing()),
            false => *named.1,
        })
        .collect();
    let prints = named.iter().map(|&(print, _)| print);
    let named: SmallVec<[_; 4]> = prints.zip(&owed).collect();
    adjust_owed(locks, &named, now)
}

/// Makes adjustments, after those that a reset has forgiven were changed to return nothing.
fn adjust_owed(
    locks: &mut LockSet<'_>,
    named: &[(Fingerprint, &Adjustment<'_>)],
    now: Timestamp,
) -> Applied {
    // Without waiters in these shards, nothing but the values changes.
    if !locks.have_lines() {
        let applied = adjust_list(locks, named, now);
        for &(print, _) in named {
            if let Some(shard) = locks.shard(print) {
                shard.note(print.tag(), now);
            }
        }
        return applied;
    }
    for &(print, one) in named {
        if let Some(shard) = locks.shard(print) {
            let delays = matches!(one.change(), Change::Block { .. });
            shard.before_change(print.tag(), delays, now);
        }
    }
    // What is due was granted above, so these values are what the lines count from. `None` for a
    // bucket without a line.
    let before: SmallVec<[Option<(Bucket, Units)>; 8]> = named
        .iter()
        .map(|&(print, _)| locks.shard(print).and_then(|shard| shard.line_value(print.tag(), now)))
        .collect();
    // A refund must not open a blocked bucket. Which of those that look like one are none, only the
    // lines know.
    let made: SmallVec<[Adjustment<'_>; 4]> = named
        .iter()
        .map(|&(print, one)| {
            let shard = locks.shard(print);
            match shard.is_some_and(|shard| shard.is_set_back(print.tag(), now)) {
                true => one.to_open_bucket(),
                false => *one,
            }
        })
        .collect();
    let made: SmallVec<[_; 4]> = named.iter().map(|&(print, _)| print).zip(&made).collect();
    let applied = adjust_list(locks, &made, now);
    let repeats = Repeats::find(named.iter().map(|(print, _)| *print));
    // What each bucket is given and what is taken from it, in the numbers in which it is counted,
    // at the first place that names it.
    let mut sums = SmallVec::<[[Units; 2]; 8]>::from_elem([0; 2], named.len());
    for (nth, ((_, one), before)) in named.iter().zip(&before).enumerate() {
        let Some((bucket, _)) = before else { continue };
        let units = convert_units(one.units(), one.bucket(), bucket);
        if let Some([given, taken]) = sums.get_mut(first_place(&repeats, named, nth)) {
            *given = given.saturating_add(units.max(0));
            *taken = taken.saturating_add(0_i64.saturating_sub(units).max(0));
        }
    }
    // Once for each bucket: first what was taken joins its line, then what came back is granted.
    for (nth, ((&(print, _), before), [given, taken])) in
        named.iter().zip(before).zip(sums).enumerate()
    {
        let Some(shard) = locks.shard(print) else { continue };
        if first_place(&repeats, named, nth) != nth {
            continue;
        }
        let (tag, value) = (print.tag(), shard.line_value(print.tag(), now));
        let (Some((_, before)), Some((_, after))) = (before, value) else {
            // Without a line, nothing but the value changes.
            shard.note(tag, now);
            continue;
        };
        // A debt that is too deep to be counted is cut, so no more than the actual change joins the
        // line.
        let gone = before.saturating_add(given).saturating_sub(after);
        if taken > 0 && applied.verdict() == Verdict::Admitted {
            shard.enter_unattended(tag, taken.min(gone), now);
        }
        shard.after_change(tag, before, now);
    }
    applied
}

/// Removes a waiter from its lines. Of the refunds, makes those for the buckets that have granted
/// already.
pub(super) fn leave_all(
    shards: &Shards,
    hasher: &Hasher,
    LineTicket { waiter, places, .. }: &LineTicket,
    refunds: &[Adjustment<'_>],
    now: impl FnOnce() -> Timestamp,
) {
    let named = refunds.iter().map(|one| (hasher.fingerprint(one.id()), *one));
    let mut named: SmallVec<[_; 4]> = named.collect();
    let in_line = places.iter().map(|place| place.print);
    let prints: SmallVec<[_; 8]> = named.iter().map(|&(print, _)| print).chain(in_line).collect();
    let mut locks = LockSet::lock(shards, prints.iter().copied());
    let now = now();
    for &LinePlace { print, ticket, .. } in places {
        if locks.shard(print).is_some_and(|shard| shard.leave(print.tag(), ticket, now)) {
            // A bucket that was named twice has one place in line.
            named.retain(|&mut (named, _)| named != print);
        }
    }
    for (print, one) in &mut named {
        if let Some(mark) = waiter.mark_of(|| print.tag()) {
            *one = one.with_mark(mark);
        }
    }
    if !named.is_empty() {
        let named: SmallVec<[_; 4]> = named.iter().map(|(print, one)| (*print, one)).collect();
        adjust(&mut locks, &named, now);
    }
    locks.unlock();
}
