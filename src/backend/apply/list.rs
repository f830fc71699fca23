//! Several charges at once: all of them or none.
//!
//! # Design
//!
//! Each bucket that a charge names gets an entry with what the charge leaves in it; a two-choices
//! charge has two entries. The last entry of a bucket is what the next charge on it starts from,
//! and what is stored in the end. Nothing is stored before all charges are decided.
//!
//! For example, a bucket holds 5 tokens, and a list takes 3, 1 and 2 from it. The entries leave 2,
//! 1 and -1. The last charge is refused, so the whole list is, and nothing is taken. Its wait is
//! that for one token, because the charges before it count.
//!
//! If a charge is refused, each bucket that is stored for another quota is stored converted, with
//! nothing taken. A bucket that several quotas name is then stored for that of the last charge that
//! takes: the one that it would be stored for if the list were admitted.

use smallvec::SmallVec;

use super::cell_store::{CellStore, write_first_use};
use super::lone::{has_paid, is_stored_for};
use crate::algebra::{State, Units, Verdict, charge, charge_pair};
use crate::backend::answer::{Applied, Reading};
use crate::backend::charge::{BucketId, Charge};
use crate::backend::record::convert;
use crate::backend::repeats::Repeats;
use crate::clock::Timestamp;

/// Takes all charges, or none of them.
///
/// `named` has each charge once for each bucket that it names. A two-choices charge stands there
/// twice, next to each other, first with the cell of its own shard.
pub(in crate::backend) fn apply_list<C: CellStore>(
    cells: &mut C,
    named: &[(C::Cell, &Charge<'_>)],
    now: Timestamp,
) -> Applied {
    let mut entries: SmallVec<[Entry<'_, C::Cell>; 8]> = SmallVec::new();
    let repeats = Repeats::find(named.iter().map(|(cell, _)| *cell));
    let mut lasts = LastEntries::new(&repeats);
    let mut buckets = named.iter().copied();
    while let Some((cell, charge)) = buckets.next() {
        let (id, nth) = (charge.id(), entries.len());
        let before = last(&entries, &lasts, nth, cell);
        let balance = Balance::read(cells, cell, id, charge, before, now);
        let Some(other) = charge.get_second_shard() else {
            entries.push(balance.charge(charge, now));
            lasts.note(nth);
            continue;
        };
        let Some((cell, _)) = buckets.next() else { break };
        let before = last(&entries, &lasts, nth.saturating_add(1), cell);
        let other = Balance::read(cells, cell, id.shard(other), charge, before, now);
        entries.extend(balance.charge_pair(other, charge, now));
        lasts.note(nth);
        lasts.note(nth.saturating_add(1));
    }

    let refused = entries.iter().any(|entry| entry.verdict == Verdict::Refused);
    if refused {
        write_all_refused(cells, &entries, &repeats, now);
    } else {
        write_all_taken(cells, &entries, now);
    }
    let reading = |(nth, entry): (usize, &Entry<'_, C::Cell>)| {
        let last = last(&entries, &lasts, nth, entry.balance.cell);
        let (state, units) = match last {
            _ if refused => (entry.balance.stored, 0),
            // Nearly always the bucket is named once, and this is its only entry.
            Some(last) if !std::ptr::eq(last, entry) => {
                (last.left_for(entry.charge, now), entry.units)
            }
            _ => (entry.left, entry.units),
        };
        Reading::in_micros(entry.verdict, state, units, entry.wait)
    };
    Applied::collect(now, entries.len(), entries.iter().enumerate().map(reading))
}

/// Stores what the charges leave in their buckets.
fn write_all_taken<C: CellStore>(cells: &mut C, entries: &[Entry<'_, C::Cell>], now: Timestamp) {
    for entry in entries.iter().filter(|entry| is_stored_for(entry.charge)) {
        let (cell, id, bucket) = (entry.balance.cell, entry.charge.id(), entry.charge.bucket());
        if has_paid(entry.charge, entry.units) {
            cells.write(cell, bucket, entry.left, now);
        } else {
            write_first_use(cells, cell, id, bucket, entry.left, now);
        }
    }
}

/// Stores the buckets that were converted or are used for the first time, without the charges.
fn write_all_refused<C: CellStore>(
    cells: &mut C,
    entries: &[Entry<'_, C::Cell>],
    repeats: &Repeats,
    now: Timestamp,
) {
    let mut later = LastEntries::new(repeats);
    // In reverse: the last charge on a bucket decides its quota, and those before it leave it so.
    for (nth, entry) in entries.iter().enumerate().rev().filter(|(_, entry)| entry.charge.takes()) {
        let (cell, id, bucket) = (entry.balance.cell, entry.charge.id(), entry.charge.bucket());
        let names = |other: &Entry<'_, C::Cell>| other.charge.takes() && other.balance.cell == cell;
        let search = || entries.iter().rposition(names).filter(|&last| last > nth);
        if cells.is_converted(cell, id, bucket, now) && later.find(nth, search).is_none() {
            cells.write(cell, bucket, entry.balance.stored, now);
        } else {
            write_first_use(cells, cell, id, bucket, entry.balance.stored, now);
        }
        later.note(nth);
    }
}

/// The last entry of each bucket so far.
struct LastEntries<'r> {
    repeats: &'r Repeats,
    /// By the place of the bucket's first entry; used only if the list is long and names a bucket
    /// twice.
    noted: Vec<Option<usize>>,
}

impl<'r> LastEntries<'r> {
    fn new(repeats: &'r Repeats) -> Self {
        let noted = match repeats {
            Repeats::Firsts(firsts) => vec![None; firsts.len()],
            Repeats::Short | Repeats::Unique => Vec::new(),
        };
        Self { repeats, noted }
    }

    fn note(&mut self, nth: usize) {
        if let Repeats::Firsts(firsts) = self.repeats
            && let Some(noted) = firsts.get(nth).and_then(|first| self.noted.get_mut(*first))
        {
            *noted = Some(nth);
        }
    }

    /// The last entry of the bucket of this entry. A short list is searched.
    #[inline]
    fn find(&self, nth: usize, search: impl FnOnce() -> Option<usize>) -> Option<usize> {
        match self.repeats {
            Repeats::Short => search(),
            Repeats::Unique => None,
            Repeats::Firsts(firsts) => {
                firsts.get(nth).and_then(|first| self.noted.get(*first)).copied().flatten()
            }
        }
    }
}

/// What a bucket holds before a charge.
#[derive(Clone, Copy)]
struct Balance<Cell> {
    cell: Cell,
    /// Without the charges of this call: what remains if one is refused.
    stored: State,
    /// After the earlier charges of this call.
    available: State,
}

impl<Cell: Copy + Ord> Balance<Cell> {
    fn read<C: CellStore<Cell = Cell>>(
        cells: &mut C,
        cell: Cell,
        id: BucketId<'_>,
        charge: &Charge<'_>,
        before: Option<&Entry<'_, Cell>>,
        now: Timestamp,
    ) -> Self {
        let bucket = charge.bucket();
        let stored = bucket.refresh(cells.read(cell, id, bucket, now), now);
        let available = before.map_or(stored, |entry| entry.left_for(charge, now));
        Self { cell, stored, available }
    }

    fn charge<'a>(self, asked: &'a Charge<'a>, now: Timestamp) -> Entry<'a, Cell> {
        let charged = charge(asked.bucket(), self.available, asked.units(), asked.get_terms(), now);
        let (left, units) = if asked.takes() {
            (charged.after(), asked.units().max(0))
        } else {
            (charged.before(), 0)
        };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        Entry { balance: self, charge: asked, left, units, verdict, wait }
    }

    fn charge_pair<'a>(
        self,
        other: Self,
        charge: &'a Charge<'a>,
        now: Timestamp,
    ) -> [Entry<'a, Cell>; 2] {
        let states = [self.available, other.available];
        let charged = charge_pair(charge.bucket(), states, charge.units(), charge.get_terms(), now);
        let ([first, second], [first_pays, second_pays]) = if charge.takes() {
            (charged.after(), charged.paid())
        } else {
            (charged.before(), [0; 2])
        };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        [(self, first, first_pays), (other, second, second_pays)]
            .map(|(balance, left, units)| Entry { balance, charge, left, units, verdict, wait })
    }
}

/// The result of a charge in one bucket, not stored yet.
struct Entry<'a, Cell> {
    balance: Balance<Cell>,
    charge: &'a Charge<'a>,
    /// What the charge leaves in the bucket.
    left: State,
    /// What the charge takes from this bucket, unless one is refused.
    units: Units,
    verdict: Verdict,
    /// In microseconds.
    wait: u64,
}

impl<Cell> Entry<'_, Cell> {
    /// What this charge leaves, converted to the quota of another charge on the same bucket.
    fn left_for(&self, other: &Charge<'_>, now: Timestamp) -> State {
        if self.charge.bucket() == other.bucket() {
            return self.left;
        }
        convert(self.charge.bucket(), other.bucket(), self.left, other.id(), now)
    }
}

/// The last charge so far on the bucket of this entry.
fn last<'a, 'b, Cell: PartialEq>(
    entries: &'b [Entry<'a, Cell>],
    lasts: &LastEntries<'_>,
    nth: usize,
    cell: Cell,
) -> Option<&'b Entry<'a, Cell>> {
    let search = || entries.iter().rposition(|entry| entry.balance.cell == cell);
    entries.get(lasts.find(nth, search)?)
}
