//! Several charges at once: all of them or none.
//!
//! # Design
//!
//! All shards concerned are locked before anything is read, always in the order of their numbers,
//! so that two transactions over the same shards cannot wait for each other. They are let go of
//! together when everything is written. Whoever holds the locks sees either all of another
//! transaction or nothing of it.
//!
//! Each bucket that a charge names, two of them for a two-choices charge, gets an entry with what
//! the charge leaves in it. The last entry of a bucket is what the next charge on it sees, and
//! what is stored in the end; nothing is stored before all charges are decided.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::fingerprint::{Fingerprint, Hasher};
use super::shard::{Kept, Shard, changes, decide};
use super::shards::Shards;
use super::{Applied, BucketId, Charge, Reading, Refund, Refunded};
use crate::algebra::{State, Units, Verdict, charge_pair, rescale};
use crate::clock::Timestamp;

pub(super) fn apply(
    shards: &Shards,
    hasher: &Hasher,
    charges: &[Charge<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let mut named = Few::new();
    for charge in charges {
        let id = charge.id();
        named.push((hasher.fingerprint(id), charge));
        if let Some(other) = charge.other() {
            named.push((hasher.fingerprint(id.shard(other)), charge));
        }
    }
    let mut locked = Locked::lock(shards, named.iter().map(|&(print, _)| print));
    let now = now();

    let mut decided = SmallVec::new();
    let mut buckets = named.iter().copied();
    while let Some((print, charge)) = buckets.next() {
        // Every bucket's shard was locked above.
        let Some(seen) = Seen::by(charge, print, &decided, &mut locked, now) else { continue };
        if charge.other().is_none() {
            decided.push(seen.charged(charge, now));
            continue;
        }
        let Some((print, _)) = buckets.next() else { continue };
        let Some(other) = Seen::by(charge, print, &decided, &mut locked, now) else { continue };
        let [first, second] = seen.charged_or(other, charge, now);
        decided.push(first);
        decided.push(second);
    }

    let refused = decided.iter().any(|one| one.verdict == Verdict::Refused);
    for one in decided.iter().filter(|one| changes(one.charge)) {
        if let Some(shard) = locked.shard(one.seen.print) {
            let kept = if refused { Kept::NotTaken(one.seen.stands) } else { one.kept() };
            shard.write(one.seen.print, one.charge.bucket(), kept, now);
        }
    }
    let reading = |one: &Decided<'_>| {
        let (state, units) = match last(&decided, one.seen.print) {
            _ if refused => (one.seen.stands, 0),
            // Nearly always the bucket was named once.
            Some(last) if !std::ptr::eq(last, one) => (last.leaves(one.charge, now), one.units),
            _ => (one.left, one.units),
        };
        Reading::in_micros(one.verdict, state, units, one.wait)
    };
    Applied::gathered(now, decided.len(), decided.iter().map(reading))
}

/// Gives back all refunds, or none of them.
pub(super) fn refund(
    shards: &Shards,
    hasher: &Hasher,
    refunds: &[Refund<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Refunded {
    let mut named = Few::new();
    for refund in refunds {
        named.push((hasher.fingerprint(refund.id()), refund));
    }
    let mut locked = Locked::lock(shards, named.iter().map(|&(print, _)| print));
    let now = now();
    // Every refund's shard was locked above, so none is passed over here or below.
    let given = named.iter().all(|&(print, refund)| {
        locked.shard(print).is_some_and(|shard| shard.is_as_asked(print, refund, now))
    });
    if given {
        for &(print, refund) in named.iter() {
            if let Some(shard) = locked.shard(print) {
                shard.refund(print, refund, now);
            }
        }
    }
    let stands = |&(print, refund)| Some(locked.shard(print)?.stands(print, refund, now));
    Refunded::gathered(now, given, named.len(), named.iter().filter_map(stands))
}

/// A list that needs no allocation while it is short.
type Few<T> = SmallVec<[T; 8]>;

/// Forgets all of them, in one step.
pub(super) fn reset(shards: &Shards, hasher: &Hasher, ids: &[BucketId<'_>]) {
    let mut prints = Few::new();
    ids.iter().for_each(|&id| prints.push(hasher.fingerprint(id)));
    let mut locked = Locked::lock(shards, prints.iter().copied());
    for &print in prints.iter() {
        if let Some(shard) = locked.shard(print) {
            shard.forget(print);
        }
    }
}

/// A bucket as a charge finds it.
#[derive(Clone, Copy)]
struct Seen {
    print: Fingerprint,
    /// What the bucket holds if nothing is taken.
    stands: State,
    /// What the charges before this one leave in it.
    state: State,
}

impl Seen {
    /// A bucket as it is in a locked shard, but for the charges decided so far.
    fn by(
        charge: &Charge<'_>,
        print: Fingerprint,
        decided: &Few<Decided<'_>>,
        locked: &mut Locked<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        let stands = charge.bucket().refresh(locked.shard(print)?.read(print, charge, now), now);
        // A bucket that is named again has paid for the first time already.
        let state = last(decided, print).map_or(stands, |earlier| earlier.leaves(charge, now));
        Some(Self { print, stands, state })
    }

    /// Asks for all of an ordinary charge.
    fn charged<'a>(self, charge: &'a Charge<'a>, now: Timestamp) -> Decided<'a> {
        let charged = decide(charge, self.state, now);
        let (left, units) = if charge.takes() {
            (charged.after(), charge.units().max(0))
        } else {
            (charged.before(), 0)
        };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        Decided { seen: self, charge, left, units, verdict, wait }
    }

    /// Asks this bucket and another for a two-choices charge.
    fn charged_or<'a>(
        self,
        other: Self,
        charge: &'a Charge<'a>,
        now: Timestamp,
    ) -> [Decided<'a>; 2] {
        let states = [self.state, other.state];
        let charged = charge_pair(charge.bucket(), states, charge.units(), charge.terms(), now);
        let ([first, second], [first_pays, second_pays]) = if charge.takes() {
            (charged.after(), charged.paid())
        } else {
            (charged.before(), [0; 2])
        };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        [(self, first, first_pays), (other, second, second_pays)]
            .map(|(seen, left, units)| Decided { seen, charge, left, units, verdict, wait })
    }
}

/// What a charge came to in one bucket, not yet stored.
struct Decided<'a> {
    seen: Seen,
    charge: &'a Charge<'a>,
    /// What the bucket holds after the charge.
    left: State,
    /// What the charge takes from this bucket, unless one is refused.
    units: Units,
    verdict: Verdict,
    /// In microseconds.
    wait: u64,
}

impl Decided<'_> {
    /// What this charge leaves, seen by another one on the same bucket.
    fn leaves(&self, other: &Charge<'_>, now: Timestamp) -> State {
        if self.charge.bucket() == other.bucket() {
            return self.left;
        }
        let phase = other.id().phase(other.bucket());
        rescale(self.charge.bucket(), other.bucket(), self.left, now, phase)
    }

    /// What there is to store if no charge is refused.
    fn kept(&self) -> Kept {
        // The candidate that does not pay has not changed.
        let spared = self.units == 0 && self.charge.other().is_some();
        if spared { Kept::NotTaken(self.left) } else { Kept::Taken(self.left) }
    }
}

/// The last charge that was decided on a bucket.
fn last<'a, 'b>(decided: &'b Few<Decided<'a>>, print: Fingerprint) -> Option<&'b Decided<'a>> {
    decided.iter().rev().find(|one| one.seen.print == print)
}

/// The shards of a transaction, in the order of their numbers.
struct Locked<'a> {
    shards: &'a Shards,
    guards: Few<(usize, MutexGuard<'a, Shard>)>,
}

impl<'a> Locked<'a> {
    /// Locks the shards of all these buckets, each once and the lowest first.
    fn lock(shards: &'a Shards, prints: impl Iterator<Item = Fingerprint>) -> Self {
        let mut indices = Few::<usize>::new();
        for print in prints {
            let index = shards.index_of(print);
            if let Err(place) = indices.binary_search(&index) {
                indices.insert(place, index);
            }
        }
        let mut guards = Few::new();
        for index in indices {
            guards.push((index, shards.at(index).lock()));
        }
        Self { shards, guards }
    }

    fn shard(&mut self, print: Fingerprint) -> Option<&mut Shard> {
        let index = self.shards.index_of(print);
        let position = self.guards.binary_search_by_key(&index, |&(index, _)| index).ok()?;
        self.guards.get_mut(position).map(|(_, guard)| &mut **guard)
    }
}
