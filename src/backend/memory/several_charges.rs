//! Charges on several buckets at once, under the locks of their shards.

use smallvec::SmallVec;

use super::fingerprint::Hasher;
use super::lock_set::LockSet;
use super::several::{buckets_in_debt, fingerprint_all, fingerprint_of};
use super::shards::Shards;
use crate::algebra::Verdict;
use crate::backend::answer::Applied;
use crate::backend::apply::{Payment, apply_list, pay_all};
use crate::backend::charge::Charge;
use crate::clock::Timestamp;

/// Takes all charges, or none of them.
///
/// # Errors
///
/// The error of a charge, if one is an error. Nothing is taken then.
// Inlined, so that charges stay in registers: the payments have what is needed of each.
#[inline(always)]
pub(super) fn charge_all<'c, E>(
    shards: &Shards,
    hasher: &Hasher,
    charges: impl Iterator<Item = Result<Charge<'c>, E>> + Clone,
    now: impl FnOnce() -> Timestamp,
) -> Result<Applied, E> {
    let mut payments = SmallVec::<[_; 8]>::new();
    for charge in charges.clone() {
        let charge = charge?;
        let id = charge.id();
        payments.push(Payment::for_own_shard(fingerprint_of(hasher, id), &charge));
        if let Some(other) = charge.get_second_shard() {
            payments
                .push(Payment::for_second_shard(fingerprint_of(hasher, id.shard(other)), &charge));
        }
    }
    let mut locks = LockSet::lock(shards, payments.iter().map(|payment| payment.cell));
    // Read under the locks, so that a call that decides later does not read an earlier time.
    let now = now();
    let mark = locks.mark();
    if !pay_all(&mut locks, &mut payments, now) {
        return Ok(charge_others(locks, hasher, charges.filter_map(Result::ok), now));
    }
    // No wakers and no timers to run: a charge on known buckets at most makes the value smaller,
    // which grants nothing.
    drop(locks);
    let readings = payments.iter().map(|payment| payment.reading(mark));
    Ok(Applied::collect(now, payments.len(), readings))
}

/// The general case of [`charge_all`].
#[cold]
#[inline(never)]
fn charge_others<'c>(
    mut locks: LockSet<'_>,
    hasher: &Hasher,
    charges: impl Iterator<Item = Charge<'c>>,
    now: Timestamp,
) -> Applied {
    let charges: SmallVec<[_; 8]> = charges.collect();
    let named = fingerprint_all(hasher, &charges);
    let is_waited_for = locks.have_lines() && named.iter().any(|(_, charge)| charge.reserves());
    if is_waited_for {
        locks.grant_all(&named, now);
    }
    let applied = apply_list(&mut locks, &named, now).with_mark(locks.mark());
    if is_waited_for && applied.verdict() == Verdict::Reserved {
        // The caller waits by itself, without a waiter here, but after those in line.
        for (print, units) in buckets_in_debt(&named, applied.readings()) {
            if let Some(shard) = locks.shard(print) {
                shard.enter_unattended(print.tag(), units, now);
            }
        }
    }
    locks.unlock().run();
    applied
}
