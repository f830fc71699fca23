//! Several charges at once: all of them or none.
//!
//! # Design
//!
//! All shards concerned are locked before anything is read, always in the order of their numbers,
//! so that two transactions over the same shards cannot wait for each other. Whoever holds the
//! locks sees either all of another transaction or nothing of it.

use parking_lot::MutexGuard;

use super::fingerprint::{Fingerprint, Hasher};
use super::shard::{Kept, Shard, changes, decide};
use super::shards::Shards;
use super::{Applied, Charge, Reading, Refund, Refunded};
use crate::algebra::{Charged, State, Verdict, rescale};
use crate::clock::Timestamp;

pub(super) fn apply(
    shards: &Shards,
    hasher: &Hasher,
    charges: &[Charge<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let named: Vec<_> =
        charges.iter().map(|charge| (hasher.fingerprint(charge.id()), charge)).collect();
    let mut locked = Locked::lock(shards, named.iter().map(|&(print, _)| print));
    let now = now();

    let mut decided: Vec<Decided<'_>> = Vec::with_capacity(charges.len());
    for (print, charge) in named {
        // Every charge's shard was locked above.
        let Some(shard) = locked.shard(print) else { continue };
        let stands = charge.bucket().refresh(shard.read(print, charge, now), now);
        // A bucket that is named again has paid for the first time already.
        let state = last(&decided, print).map_or(stands, |earlier| earlier.leaves(charge, now));
        decided.push(Decided { print, charge, stands, charged: decide(charge, state, now) });
    }

    let refused = decided.iter().any(|one| one.charged.verdict() == Verdict::Refused);
    for Decided { print, charge, stands, charged } in &decided {
        if changes(charge)
            && let Some(shard) = locked.shard(*print)
        {
            let kept = if refused { Kept::Refused(*stands) } else { Kept::Taken(charged.after()) };
            shard.write(*print, charge.bucket(), kept, now);
        }
    }
    let reading = |one: &Decided<'_>| {
        let state = match last(&decided, one.print) {
            Some(last) if !refused => last.leaves(one.charge, now),
            _ => one.stands,
        };
        Reading::new(one.charged.verdict(), state, one.charged.wait())
    };
    Applied::many(now, decided.iter().map(reading).collect())
}

/// Gives back all refunds, or none of them.
pub(super) fn refund(
    shards: &Shards,
    hasher: &Hasher,
    refunds: &[Refund<'_>],
    now: impl FnOnce() -> Timestamp,
) -> Refunded {
    let named: Vec<_> =
        refunds.iter().map(|refund| (hasher.fingerprint(refund.id()), refund)).collect();
    let mut locked = Locked::lock(shards, named.iter().map(|&(print, _)| print));
    let now = now();
    // Every refund's shard was locked above, so none is passed over here or below.
    let given = named.iter().all(|&(print, refund)| {
        locked.shard(print).is_some_and(|shard| shard.is_as_asked(print, refund, now))
    });
    if given {
        for &(print, refund) in &named {
            if let Some(shard) = locked.shard(print) {
                shard.refund(print, refund, now);
            }
        }
    }
    let stands = |&(print, refund)| Some(locked.shard(print)?.stands(print, refund, now));
    Refunded::many(now, given, named.iter().filter_map(stands).collect())
}

/// A charge that was decided, but not yet stored.
struct Decided<'a> {
    print: Fingerprint,
    charge: &'a Charge<'a>,
    /// What the bucket holds if nothing is taken.
    stands: State,
    charged: Charged,
}

/// The last charge that was decided on a bucket.
fn last<'a>(decided: &'a [Decided<'a>], print: Fingerprint) -> Option<&'a Decided<'a>> {
    decided.iter().rev().find(|one| one.print == print)
}

impl Decided<'_> {
    /// What this charge leaves, seen by another one on the same bucket.
    fn leaves(&self, other: &Charge<'_>, now: Timestamp) -> State {
        let state = if self.charge.takes() { self.charged.after() } else { self.charged.before() };
        if self.charge.bucket() == other.bucket() {
            return state;
        }
        let phase = other.id().phase(other.bucket());
        rescale(self.charge.bucket(), other.bucket(), state, now, phase)
    }
}

/// The shards of a transaction, in the order of their numbers.
struct Locked<'a> {
    shards: &'a Shards,
    guards: Vec<(usize, MutexGuard<'a, Shard>)>,
}

impl<'a> Locked<'a> {
    fn lock(shards: &'a Shards, prints: impl Iterator<Item = Fingerprint>) -> Self {
        let mut indices: Vec<_> = prints.map(|print| shards.index_of(print)).collect();
        indices.sort_unstable();
        indices.dedup();
        let guards = indices.into_iter().map(|index| (index, shards.at(index).lock())).collect();
        Self { shards, guards }
    }

    fn shard(&mut self, print: Fingerprint) -> Option<&mut Shard> {
        let index = self.shards.index_of(print);
        let position = self.guards.binary_search_by_key(&index, |&(index, _)| index).ok()?;
        self.guards.get_mut(position).map(|(_, guard)| &mut **guard)
    }
}
