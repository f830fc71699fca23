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
//! If a charge is refused, each bucket takes the numbers of each charge that refill at least as
//! fast as its own, one charge after the other, and nothing else. Slower numbers wait for a list
//! that is admitted. A charge that finds the bucket in faster numbers than its own is told the wait
//! by those: also one that comes behind such a charge on the same bucket, as if that had taken its
//! units by the faster numbers.
//!
//! A look leaves no trace: the charges behind it find the bucket as it did.

use smallvec::SmallVec;

use super::cell_store::{CellStore, read, write_first_use, write_refused};
use super::lone::{charge_two, has_paid, is_stored_for};
use crate::algebra::{State, Units, Verdict, charge, charge_slower, rescale};
use crate::backend::adjustment::cost_in;
use crate::backend::answer::{Applied, Reading, Remarks};
use crate::backend::charge::{BucketId, Charge};
use crate::backend::record::{BucketRecord, Found};
use crate::backend::repeats::Repeats;
use crate::clock::Timestamp;

/// Takes all charges, or none of them.
///
/// `named` has each charge once for each bucket that it names. A two-choices charge stands there
/// twice, next to each other, first with the cell of its own shard.
pub fn apply_list<C: CellStore>(
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
            lasts.note(nth, charge);
            continue;
        };
        let Some((cell, _)) = buckets.next() else { break };
        let before = last(&entries, &lasts, nth.saturating_add(1), cell);
        let other = Balance::read(cells, cell, id.shard(other), charge, before, now);
        entries.extend(balance.charge_pair(other, charge, now));
        lasts.note(nth, charge);
        lasts.note(nth.saturating_add(1), charge);
    }

    let refused = entries.iter().any(|entry| entry.verdict == Verdict::Refused);
    if refused {
        write_all_refused(cells, &entries, now);
    } else {
        write_all_taken(cells, &entries, now);
    }
    let reading = |(nth, entry): (usize, &Entry<'_, C::Cell>)| {
        let last = last(&entries, &lasts, nth, entry.balance.cell);
        let (state, units) = match last {
            _ if refused => (entry.balance.stored, 0),
            // Nearly always the bucket is named once, and this is its only entry.
            Some(last) if !std::ptr::eq(last, entry) => {
                let left = last.left_for(entry.charge, now);
                let left = left.state_in(entry.charge.id(), entry.charge.bucket(), now);
                (left.unwrap_or(entry.left), entry.units)
            }
            _ => (entry.left, entry.units),
        };
        Reading::in_micros(entry.verdict, state, units, entry.wait)
    };
    let applied = Applied::collect(now, entries.len(), entries.iter().enumerate().map(reading));
    let mut kept = Remarks::NONE;
    for (nth, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.balance.may_keep) {
        let (cell, bucket) = (entry.balance.cell, entry.charge.bucket());
        kept.note(nth, &cells.find(cell, entry.charge.id(), bucket, now), bucket);
    }
    applied.with_remarks(kept)
}

/// Stores what the charges leave in their buckets.
fn write_all_taken<C: CellStore>(cells: &mut C, entries: &[Entry<'_, C::Cell>], now: Timestamp) {
    for entry in entries.iter().filter(|entry| is_stored_for(entry.charge)) {
        let (cell, id, bucket) = (entry.balance.cell, entry.charge.id(), entry.charge.bucket());
        if has_paid(entry.charge, entry.units) {
            cells.write(cell, bucket, entry.left, now);
        } else {
            let found = cells.find(cell, id, bucket, now);
            write_first_use(cells, cell, &found, bucket, entry.left, now);
        }
    }
}

/// Stores the buckets that take the numbers of a charge or are used for the first time, without the
/// charges.
fn write_all_refused<C: CellStore>(cells: &mut C, entries: &[Entry<'_, C::Cell>], now: Timestamp) {
    for entry in entries.iter().filter(|entry| entry.charge.takes()) {
        let (cell, id, bucket) = (entry.balance.cell, entry.charge.id(), entry.charge.bucket());
        // Found again: a charge before may have changed it.
        let found = cells.find(cell, id, bucket, now);
        let state = bucket.refresh(read(cells, cell, &found, id, bucket, now), now);
        write_refused(cells, cell, &found, bucket, state, now);
    }
}

/// The last entry of each bucket so far that takes.
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

    fn note(&mut self, nth: usize, charge: &Charge<'_>) {
        if charge.takes()
            && let Repeats::Firsts(firsts) = self.repeats
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
struct Balance<Cell> {
    cell: Cell,
    /// Whether it may be counted in other numbers than those of the charge, when the call is over.
    may_keep: bool,
    /// Without the charges of this call: what remains if one is refused.
    stored: State,
    /// After the earlier charges of this call.
    available: Found,
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
        let found = cells.find(cell, id, bucket, now);
        let stored = bucket.refresh(read(cells, cell, &found, id, bucket, now), now);
        let may_keep = before.is_some() || matches!(found, Found::Other(_));
        let available = match before {
            Some(entry) => entry.left_for(charge, now),
            None if found.kept(bucket).is_some() => found,
            None => Found::Own(stored),
        };
        Self { cell, may_keep, stored, available }
    }

    /// The same after the earlier charges of this call, in the numbers of the charge.
    fn available(&self, charge: &Charge<'_>, now: Timestamp) -> State {
        let (id, bucket) = (charge.id(), charge.bucket());
        self.available.state_in(id, bucket, now).unwrap_or(self.stored)
    }

    fn charge<'a>(self, asked: &'a Charge<'a>, now: Timestamp) -> Entry<'a, Cell> {
        let (bucket, units, terms) = (asked.bucket(), asked.units(), asked.get_terms());
        let charged = match self.available.kept(bucket) {
            Some(own) => {
                let phase = asked.id().phase(bucket);
                charge_slower(own.bucket(), own.state(), bucket, units, terms, now, phase)
            }
            None => charge(bucket, self.available(asked, now), units, terms, now),
        };
        let (left, units) =
            if asked.takes() { (charged.after(), units.max(0)) } else { (charged.before(), 0) };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        let own = self.own_after(asked, verdict, units, now);
        Entry { balance: self, charge: asked, left, own, units, verdict, wait }
    }

    fn charge_pair<'a>(
        self,
        other: Self,
        charge: &'a Charge<'a>,
        now: Timestamp,
    ) -> [Entry<'a, Cell>; 2] {
        let states = [self.available(charge, now), other.available(charge, now)];
        let charged = charge_two([&self.available, &other.available], states, charge, now);
        let (after, [first_pays, second_pays]) = if charge.takes() {
            (charged.after(), charged.paid())
        } else {
            (charged.before(), [0; 2])
        };
        let ([first, second], [first_left, second_left]) = (charged.before(), after);
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        [(self, first, first_left, first_pays), (other, second, second_left, second_pays)].map(
            |(balance, before, left, units)| {
                let taken = before.value.saturating_sub(left.value);
                let own = balance.own_after(charge, verdict, taken, now);
                Entry { balance, charge, left, own, units, verdict, wait }
            },
        )
    }

    /// What a charge leaves that takes so many units and is refused, in the faster numbers that the
    /// bucket keeps.
    fn own_after(
        &self,
        charge: &Charge<'_>,
        verdict: Verdict,
        units: Units,
        now: Timestamp,
    ) -> Option<Box<BucketRecord>> {
        if verdict != Verdict::Refused {
            return None;
        }
        let own = self.available.kept(charge.bucket())?;
        // At its present time, and with no more debt than can be counted: what a store has of the
        // bucket, and what it told of it before, have to lead to the same wait.
        let numbers = own.bucket();
        let State { value, ts } = numbers.refresh(own.state(), now);
        let value = value.saturating_sub(cost_in(units, charge.bucket(), numbers));
        let value = value.max(numbers.min_value());
        Some(Box::new(BucketRecord::new(numbers, State { value, ts })))
    }
}

/// The result of a charge in one bucket, not stored yet.
struct Entry<'a, Cell> {
    balance: Balance<Cell>,
    charge: &'a Charge<'a>,
    /// What the charge leaves in the bucket.
    left: State,
    /// The same in the faster numbers that the bucket keeps, if the charge is refused by slower
    /// ones.
    own: Option<Box<BucketRecord>>,
    /// What the charge takes from this bucket, unless one is refused.
    units: Units,
    verdict: Verdict,
    /// In microseconds.
    wait: u64,
}

impl<Cell> Entry<'_, Cell> {
    /// What this charge leaves for another charge on the same bucket.
    fn left_for(&self, other: &Charge<'_>, now: Timestamp) -> Found {
        let (id, bucket) = (other.id(), other.bucket());
        if self.own.is_none() && self.charge.bucket() == bucket {
            return Found::Own(self.left);
        }
        let left = BucketRecord::new(self.charge.bucket(), self.left);
        let left = self.own.as_deref().copied().unwrap_or(left);
        match left.find(id, bucket, now) {
            Found::Absent => {
                let phase = id.phase(bucket);
                Found::Own(rescale(left.bucket(), bucket, left.state(), now, phase))
            }
            found => found,
        }
    }
}

/// The last charge so far that takes from the bucket of this entry.
fn last<'a, 'b, Cell: PartialEq>(
    entries: &'b [Entry<'a, Cell>],
    lasts: &LastEntries<'_>,
    nth: usize,
    cell: Cell,
) -> Option<&'b Entry<'a, Cell>> {
    let names = |entry: &Entry<'a, Cell>| entry.charge.takes() && entry.balance.cell == cell;
    let search = || entries.iter().rposition(names);
    entries.get(lasts.find(nth, search)?)
}
