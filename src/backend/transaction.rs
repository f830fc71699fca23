//! Several charges at once: all of them or none, wherever their buckets are.
//!
//! # Design
//!
//! Each bucket that a charge names, two of them for a two-choices charge, gets an entry with what
//! the charge leaves in it. The last entry of a bucket is what the next charge on it sees, and
//! what is stored in the end; nothing is stored before all charges are decided. Whoever calls this sees to
//! it that nobody else reads or writes the buckets meanwhile.

use smallvec::SmallVec;

use super::{Adjustment, Applied, BucketId, Charge, Reading};
use crate::algebra::{Bucket, State, Units, Verdict, charge, charge_pair, rescale};
use crate::clock::Timestamp;

/// Buckets that are read and written as one.
pub(super) trait Cells {
    /// What tells one bucket from another here.
    type Id: Copy + Ord;

    /// What a bucket holds in these numbers: what was stored, or what an absent one holds. `None` if
    /// it is none of those that may be read now.
    fn read(
        &mut self,
        cell: Self::Id,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Option<State>;

    /// Whether anything is stored for a bucket.
    fn is_stored(&mut self, cell: Self::Id) -> bool;

    /// Stores what a charge came to.
    fn write(&mut self, cell: Self::Id, bucket: &Bucket, kept: Kept, now: Timestamp);
}

/// What is left in a bucket after a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    /// The charge was taken.
    Taken(State),
    /// It was not, or another bucket has paid for it, and this is what the bucket holds.
    NotTaken(State),
}

/// A list that needs no allocation while it is short.
pub(super) type Few<T> = SmallVec<[T; 8]>;

/// Takes all charges, or none of them. Each is named once for each bucket that may pay: twice, next to each
/// other, if it is a two-choices charge.
pub(super) fn apply<C: Cells>(
    cells: &mut C,
    named: &[(C::Id, &Charge<'_>)],
    now: Timestamp,
) -> Applied {
    let mut decided: Few<Decided<'_, C::Id>> = SmallVec::new();
    let repeats = repeats(named.iter().map(|(cell, _)| *cell));
    let mut buckets = named.iter().copied();
    while let Some((cell, charge)) = buckets.next() {
        let (id, before) = (charge.id(), if repeats { decided.as_slice() } else { &[] });
        let Some(seen) = Seen::by(charge, id, cell, before, cells, now) else { continue };
        let Some(other) = charge.other() else {
            decided.push(seen.charged(charge, now));
            continue;
        };
        let (Some((cell, _)), id) = (buckets.next(), id.shard(other)) else { continue };
        let Some(other) = Seen::by(charge, id, cell, before, cells, now) else { continue };
        let [first, second] = seen.charged_or(other, charge, now);
        decided.push(first);
        decided.push(second);
    }

    let refused = decided.iter().any(|one| one.verdict == Verdict::Refused);
    for one in decided.iter().filter(|one| changes(one.charge)) {
        let kept = if refused { Kept::NotTaken(one.seen.stands) } else { one.kept() };
        cells.write(one.seen.cell, one.charge.bucket(), kept, now);
    }
    let reading = |one: &Decided<'_, C::Id>| {
        let last = || last(if repeats { decided.as_slice() } else { &[] }, one.seen.cell);
        let (state, units) = match last() {
            _ if refused => (one.seen.stands, 0),
            // Nearly always the bucket was named once.
            Some(last) if !std::ptr::eq(last, one) => (last.leaves(one.charge, now), one.units),
            _ => (one.left, one.units),
        };
        Reading::in_micros(one.verdict, state, units, one.wait)
    };
    Applied::gathered(now, decided.len(), decided.iter().map(reading))
}

/// Whether a bucket may be named more than once: to look for it in a long list each time would take time that grows
/// with its square.
fn repeats<Id: Ord>(cells: impl ExactSizeIterator<Item = Id>) -> bool {
    if cells.len() <= SHORT {
        return true;
    }
    let mut cells: Vec<_> = cells.collect();
    cells.sort_unstable();
    cells.windows(2).any(|pair| matches!(pair, [one, next] if one == next))
}

/// A list that is looked through sooner than sorted.
const SHORT: usize = 8;

/// Makes all adjustments, or none of them if a bucket does not allow one.
pub(super) fn adjust<C: Cells>(
    cells: &mut C,
    named: &[(C::Id, &Adjustment<'_>)],
    now: Timestamp,
) -> Applied {
    let allowed = named.iter().all(|&(cell, one)| {
        let state = cells.read(cell, one.id(), one.bucket(), now);
        state.is_some_and(|state| one.is_allowed(state, now))
    });
    if allowed {
        for &(cell, one) in named {
            adjust_one(cells, cell, one, now);
        }
    }
    let verdict = if allowed { Verdict::Admitted } else { Verdict::Refused };
    let reading = |&(cell, one): &(C::Id, &Adjustment<'_>)| {
        let state = cells.read(cell, one.id(), one.bucket(), now)?;
        Some(Reading::in_micros(verdict, one.bucket().refresh(state, now), 0, 0))
    };
    Applied::gathered(now, named.len(), named.iter().filter_map(reading))
}

fn adjust_one<C: Cells>(cells: &mut C, cell: C::Id, one: &Adjustment<'_>, now: Timestamp) {
    // An absent bucket has room for nothing, and storing it would change no answer.
    if !cells.is_stored(cell) && !one.takes() {
        return;
    }
    if let Some(state) = cells.read(cell, one.id(), one.bucket(), now) {
        let kept = Kept::Taken(one.apply_to(state, now));
        cells.write(cell, one.bucket(), kept, now);
    }
}

/// Whether there can be something to store. Nothing is taken by a look, nor by a cost of zero; but
/// a bucket that begins below full begins to fill with its first use, whatever that takes.
pub(super) fn changes(charge: &Charge<'_>) -> bool {
    charge.takes() && (charge.units() != 0 || !charge.bucket().forgets())
}

/// A bucket as a charge finds it.
#[derive(Clone, Copy)]
struct Seen<Id> {
    cell: Id,
    /// What the bucket holds if nothing is taken.
    stands: State,
    /// What the charges before this one leave in it.
    state: State,
}

impl<Id: Copy + Ord> Seen<Id> {
    /// A bucket as it is stored, but for the charges decided so far.
    fn by<C: Cells<Id = Id>>(
        charge: &Charge<'_>,
        id: BucketId<'_>,
        cell: Id,
        decided: &[Decided<'_, Id>],
        cells: &mut C,
        now: Timestamp,
    ) -> Option<Self> {
        let bucket = charge.bucket();
        let stands = bucket.refresh(cells.read(cell, id, bucket, now)?, now);
        // A bucket that is named again has paid for the first time already.
        let state = last(decided, cell).map_or(stands, |earlier| earlier.leaves(charge, now));
        Some(Self { cell, stands, state })
    }

    /// Asks for all of an ordinary charge.
    fn charged<'a>(self, asked: &'a Charge<'a>, now: Timestamp) -> Decided<'a, Id> {
        let charged = charge(asked.bucket(), self.state, asked.units(), asked.terms(), now);
        let (left, units) = if asked.takes() {
            (charged.after(), asked.units().max(0))
        } else {
            (charged.before(), 0)
        };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        Decided { seen: self, charge: asked, left, units, verdict, wait }
    }

    /// Asks this bucket and another for a two-choices charge.
    fn charged_or<'a>(
        self,
        other: Self,
        charge: &'a Charge<'a>,
        now: Timestamp,
    ) -> [Decided<'a, Id>; 2] {
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
struct Decided<'a, Id> {
    seen: Seen<Id>,
    charge: &'a Charge<'a>,
    /// What the bucket holds after the charge.
    left: State,
    /// What the charge takes from this bucket, unless one is refused.
    units: Units,
    verdict: Verdict,
    /// In microseconds.
    wait: u64,
}

impl<Id> Decided<'_, Id> {
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
fn last<'a, 'b, Id: PartialEq>(
    decided: &'b [Decided<'a, Id>],
    cell: Id,
) -> Option<&'b Decided<'a, Id>> {
    decided.iter().rev().find(|one| one.seen.cell == cell)
}
