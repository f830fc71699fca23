//! Charges on several buckets at once, under the locks of their shards.

use std::array;

use parking_lot::MutexGuard;

use super::fingerprint::{Fingerprint, Hasher};
use super::lock_set::{LockSet, common_mark};
use super::several::{buckets_in_debt, fingerprint_all, fingerprint_of};
use super::shard::Shard;
use super::shards::Shards;
use crate::algebra::{
    Bucket, Charged, State, Terms, Verdict, charge as charge_one, charge_pair as charge_shards,
};
use crate::backend::answer::{Applied, MOST, Reading};
use crate::backend::apply::apply_list;
use crate::backend::charge::Charge;
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// What a few charges have left in their buckets, which have all admitted them.
#[derive(Clone, Copy)]
pub(crate) struct Taken<const N: usize> {
    pub(crate) now: Timestamp,
    pub(crate) mark: ResetMark,
    /// In the order of the charges.
    pub(crate) left: [State; N],
}

impl<const N: usize> Taken<N> {
    /// The readings of these charges.
    #[inline(always)]
    pub(crate) fn readings<'c>(
        &self,
        charges: impl Iterator<Item = Charge<'c>>,
    ) -> impl Iterator<Item = Reading> {
        charges.zip(self.left).map(|(charge, left)| {
            Reading::in_micros(Verdict::Admitted, left, charge.units(), 0).with_mark(self.mark)
        })
    }
}

/// Takes all charges if that is simple: there are `N` at most, of [`MOST`], and each is on one bucket that is stored by
/// its quota, is named once, and has the units. `None` if nothing was taken.
// Inlined, so that the charges stay in registers.
#[inline(always)]
pub(super) fn charge_few<'c, const N: usize>(
    shards: &Shards,
    hasher: &Hasher,
    charges: impl ExactSizeIterator<Item = Charge<'c>> + Clone,
    now: impl FnOnce() -> Timestamp,
) -> Option<Taken<N>> {
    if charges.len() > N {
        return None;
    }
    let mut few = FewBuckets::<N>::new(charges.len());
    for (found, charge) in few.buckets.iter_mut().zip(charges.clone()) {
        found.print = fingerprint_of(hasher, charge.id());
    }
    few.lock(shards)?;
    let (now, mark) = (now(), few.mark());
    for (found, charge) in few.buckets.iter_mut().zip(charges) {
        let state = found.find(&few.guards, charge.bucket())?;
        let charged = charge_one(charge.bucket(), state, charge.units(), Terms::AT_ONCE, now);
        let is_one = is_usual(&charge) && charge.get_second_shard().is_none();
        if !is_one || charged.verdict() != Verdict::Admitted {
            return None;
        }
        found.state = charged.after();
    }
    Some(Taken { now, mark, left: few.keep() })
}

/// As [`charge_few`], for a two-choices charge.
#[inline(always)]
pub(super) fn charge_pair(
    shards: &Shards,
    hasher: &Hasher,
    charge: &Charge<'_>,
    now: impl FnOnce() -> Timestamp,
) -> Option<TakenPair> {
    let other = charge.get_second_shard().filter(|_| is_usual(charge))?;
    let (id, bucket) = (charge.id(), charge.bucket());
    let mut few = FewBuckets::<2>::new(2);
    let [first, second] = &mut few.buckets;
    [first.print, second.print] = hasher.fingerprints(id, [id.shard_index(), other]);
    few.lock(shards)?;
    let (now, mark) = (now(), few.mark());
    let [first, second] = &mut few.buckets;
    let states = [first.find(&few.guards, bucket)?, second.find(&few.guards, bucket)?];
    let charged = charge_shards(bucket, states, charge.units(), Terms::AT_ONCE, now);
    if charged.verdict() != Verdict::Admitted {
        return None;
    }
    for (found, (left, paid)) in
        few.buckets.iter_mut().zip(charged.after().into_iter().zip(charged.paid()))
    {
        // One of the two may pay nothing, and stays as it is.
        if paid > 0 {
            found.state = left;
        }
    }
    few.keep();
    Some((now, mark, charged))
}

/// What a charge has left in two shards.
pub(crate) type TakenPair = (Timestamp, ResetMark, Charged<[State; 2]>);

/// Whether it takes more than nothing, and does not reserve.
#[inline(always)]
fn is_usual(charge: &Charge<'_>) -> bool {
    charge.takes() && charge.units() > 0 && charge.get_terms() == Terms::AT_ONCE
}

/// A few buckets, with their shards locked.
struct FewBuckets<'s, const N: usize> {
    /// In the order of the shards.
    guards: [Option<MutexGuard<'s, Shard>>; N],
    buckets: [FoundBucket; N],
    count: usize,
}

#[derive(Clone, Copy)]
struct FoundBucket {
    print: Fingerprint,
    /// The place of the lock of its shard.
    lock: usize,
    slot: usize,
    state: State,
}

impl<'s, const N: usize> FewBuckets<'s, N> {
    const fn new(count: usize) -> Self {
        Self { guards: [const { None }; N], buckets: [FoundBucket::NONE; N], count }
    }

    /// Locks the shards of the buckets; `None` if a bucket is named twice.
    #[inline(always)]
    fn lock(&mut self, shards: &'s Shards) -> Option<()> {
        let Self { guards, buckets, count } = self;
        // The shard of each bucket, and its own place, in one number.
        let mut order: [_; N] = array::from_fn(|nth| match buckets.get(nth) {
            Some(found) if nth < *count => {
                shards.index_of(found.print).saturating_mul(MOST).saturating_add(nth)
            }
            _ => usize::MAX,
        });
        // The order of the indices is the order of the locks: see `lock_set`.
        order.sort_unstable();
        let (mut last, mut lock) = (None, 0);
        for (position, (guard, place)) in guards.iter_mut().zip(order).take(*count).enumerate() {
            let (index, nth) = (place / MOST, place % MOST);
            if last.replace(index) != Some(index) {
                *guard = Some(shards.get(index).lock());
                lock = position;
            } else if have_repeats(buckets.get(..*count)?) {
                return None;
            }
            buckets.get_mut(nth)?.lock = lock;
        }
        Some(())
    }

    #[inline(always)]
    fn mark(&mut self) -> ResetMark {
        let most = self.guards.iter().flatten().map(|shard| shard.resets.count()).max();
        common_mark(most, self.guards.iter_mut().flatten().map(|shard| &mut **shard))
    }

    /// Stores the states, and returns them.
    #[inline(always)]
    fn keep(&mut self) -> [State; N] {
        for found in self.buckets.iter().take(self.count) {
            if let Some(Some(shard)) = self.guards.get_mut(found.lock)
                && let Some(slot) = shard.table.get_mut(found.slot)
            {
                slot.set_state(found.state);
            }
        }
        self.buckets.map(|found| found.state)
    }
}

impl FoundBucket {
    const NONE: Self = Self {
        print: Fingerprint::ZERO,
        lock: 0,
        slot: 0,
        state: State { value: 0, ts: Timestamp::UNIX_EPOCH },
    };

    /// Finds its state; `None` if it is not stored by this quota.
    #[inline(always)]
    fn find(&mut self, guards: &[Option<MutexGuard<'_, Shard>>], quota: &Bucket) -> Option<State> {
        (self.slot, self.state) = guards.get(self.lock)?.as_ref()?.find_known(self.print, quota)?;
        Some(self.state)
    }
}

#[cold]
#[inline(never)]
fn have_repeats(mut buckets: &[FoundBucket]) -> bool {
    while let [bucket, rest @ ..] = buckets {
        if rest.iter().any(|other| other.print == bucket.print) {
            return true;
        }
        buckets = rest;
    }
    false
}

/// Takes all charges, or none of them.
pub(super) fn charge_list(
    shards: &Shards,
    hasher: &Hasher,
    charges: &[Charge<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let named = fingerprint_all(hasher, charges);
    let mut locks = LockSet::lock(shards, named.iter().map(|&(print, _)| print));
    // Read under the locks, so that a call that decides later does not read an earlier time.
    let now = now();
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
    locks.unlock();
    applied
}
