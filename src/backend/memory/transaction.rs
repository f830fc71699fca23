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
use super::{Applied, Charge, Reading};
use crate::algebra::{Charged, State, Verdict, rescale};
use crate::clock::Timestamp;

pub(super) fn apply(
    shards: &Shards,
    hasher: &Hasher,
    charges: &[Charge<'_>],
    now: Timestamp,
) -> Applied {
    let named: Vec<_> =
        charges.iter().map(|charge| (hasher.fingerprint(charge.id()), charge)).collect();
    let mut locked = Locked::lock(shards, named.iter().map(|&(print, _)| print));

    let mut decided: Vec<Decided<'_>> = Vec::with_capacity(charges.len());
    for (print, charge) in named {
        let earlier = decided.iter().rev().find(|earlier| earlier.print == print);
        let state = match (earlier, locked.shard(print)) {
            (Some(earlier), _) => earlier.leaves(charge, now),
            (None, Some(shard)) => shard.read(print, charge, now),
            // Every charge's shard was locked above.
            (None, None) => continue,
        };
        decided.push(Decided { print, charge, charged: decide(charge, state, now) });
    }

    let refused = decided.iter().any(|one| one.charged.verdict() == Verdict::Refused);
    for Decided { print, charge, charged } in decided.iter().filter(|one| changes(one.charge)) {
        let kept =
            if refused { Kept::Refused(charged.before()) } else { Kept::Taken(charged.after()) };
        if let Some(shard) = locked.shard(*print) {
            shard.write(*print, charge.bucket(), kept, now);
        }
    }
    let reading = if refused { Reading::untouched } else { Reading::taken };
    Applied::many(now, decided.iter().map(|one| reading(&one.charged)).collect())
}

/// A charge that was decided, but not yet stored.
struct Decided<'a> {
    print: Fingerprint,
    charge: &'a Charge<'a>,
    charged: Charged,
}

impl Decided<'_> {
    /// What this charge leaves for a later one on the same bucket.
    fn leaves(&self, later: &Charge<'_>, now: Timestamp) -> State {
        let state = if self.charge.takes() { self.charged.state() } else { self.charged.before() };
        if self.charge.bucket() == later.bucket() {
            return state;
        }
        let phase = later.id().phase(later.bucket());
        rescale(self.charge.bucket(), later.bucket(), state, now, phase)
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
