//! The replay of a batch: the answer of each operation, from the buckets as they were before.
//!
//! # Design
//!
//! A store decides by the formula, and returns the buckets as they were before it did. The client
//! replays the operations on these states with the same formula. So its answers are as exact as in
//! memory, and cost the store nothing.

use std::time::Duration;

use smallvec::SmallVec;

use super::operation::{NamedOperation, Operation};
use tollgate::algebra::{Bucket, State, Verdict};
use tollgate::backend::{
    Applied, BackendError, BucketId, BucketRecord, OwnedAdjustment, OwnedCharge, Reading,
};
use tollgate::clock::Timestamp;
use tollgate::kit::Found;
use tollgate::kit::MOST_AHEAD;
use tollgate::kit::{CellStore, adjust_list, apply_list, apply_one};

/// The buckets of a batch, as the operations find them one after the other.
#[derive(Debug)]
pub struct Replay {
    now: Timestamp,
    /// Later times are read as now. The store has done that before it decided.
    latest: Timestamp,
    cells: Vec<StoredCell>,
    /// For each bucket that an operation of the batch names, in order, its place among the cells.
    places: Vec<usize>,
    /// The time at which every absent bucket was empty; `None` if absent buckets are full.
    initialized_at: Option<Timestamp>,
    /// The error for a foreign cell of a limit.
    foreign: fn(limit: &str) -> BackendError,
}

/// What a store has under the name of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StoredCell {
    Absent,
    Stored(BucketRecord),
    /// Absent and full, whatever the store has lost: it was reset since.
    Reset,
    /// Something that no limiter has stored.
    Foreign,
}

/// How long a store that has lost its data knows which buckets were reset since, as the script of
/// Redis says.
const RESETS_KNOWN: Duration = Duration::from_secs(32 * 24 * 60 * 60);

impl Replay {
    /// A replay at the time of the store's decision, and the latest that it reads as what it is, on the buckets as they were before it.
    /// `foreign` makes the error for a foreign cell of a limit.
    pub fn new(
        [now, latest]: [Timestamp; 2],
        cells: Vec<StoredCell>,
        places: Vec<usize>,
        foreign: fn(&str) -> BackendError,
    ) -> Self {
        Self { now, latest, cells, places, initialized_at: None, foreign }
    }

    /// Sets the time at which every absent bucket was empty.
    pub const fn initialized_at(mut self, at: Option<Timestamp>) -> Self {
        self.initialized_at = at;
        self
    }

    /// For each bucket that an operation of the batch names, in order, its place.
    pub fn take_places(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.places)
    }

    /// Replays an operation on the buckets at these places. A reset has no readings.
    pub fn answer(
        &mut self,
        operation: &NamedOperation,
        places: &[usize],
    ) -> Result<Applied, BackendError> {
        match operation.operation() {
            Operation::Charges(charges) => {
                // Before anything is replayed: an operation that names one foreign key changes none
                // of its buckets.
                self.reject_foreign(operation, places)?;
                Ok(self.apply(charges, places))
            }
            Operation::Adjustments(adjustments) => {
                self.reject_foreign(operation, places)?;
                Ok(self.adjust(adjustments, places))
            }
            // A reset may name foreign keys: the store deletes them, whatever they hold.
            Operation::Resets(_) => {
                let is_known = |lost_at| self.now < lost_at + RESETS_KNOWN;
                let is_known = self.initialized_at.is_some_and(is_known);
                let cell = if is_known { StoredCell::Reset } else { StoredCell::Absent };
                places.iter().for_each(|&place| self.keep(place, cell));
                Ok(Applied::many(self.now, Vec::new()))
            }
        }
    }

    /// The answer to these charges on the buckets as they are now, if it is a refusal that changes
    /// nothing.
    pub fn refusal(&self, operation: &NamedOperation, places: &[usize]) -> Option<Applied> {
        let Operation::Charges(charges) = operation.operation() else { return None };
        // A look is no request that waits. A bucket that is named twice would be two cells below,
        // and each of them would hold all of it.
        if !charges.iter().all(|charge| charge.as_charge().takes()) || !are_distinct(places) {
            return None;
        }
        let cells: Vec<_> =
            places.iter().map(|&place| self.cells.get(place).copied()).collect::<Option<_>>()?;
        // On a copy: the replay of a refusal may still store a converted bucket.
        let mut tried = Self { cells: cells.clone(), places: Vec::new(), ..*self };
        let own: SmallVec<[_; 8]> = (0..cells.len()).collect();
        let applied = tried.answer(operation, &own).ok()?;
        (applied.verdict() == Verdict::Refused && tried.cells == cells).then_some(applied)
    }

    /// # Errors
    ///
    /// If one of these keys holds a value that no limiter has stored.
    fn reject_foreign(
        &self,
        operation: &NamedOperation,
        places: &[usize],
    ) -> Result<(), BackendError> {
        let foreign =
            |place: &usize| matches!(self.cells.get(*place), Some(StoredCell::Foreign) | None);
        let Some(place) = places.iter().position(foreign) else { return Ok(()) };
        // Errors go to logs, and a key may be the name of a person.
        let limit = operation.operation().ids().get(place).map_or("", BucketId::limit);
        Err((self.foreign)(limit))
    }

    fn apply(&mut self, charges: &[OwnedCharge], places: &[usize]) -> Applied {
        let now = self.now;
        if let ([one], [place]) = (charges, places) {
            let one = one.as_charge();
            let (charged, kept) = apply_one(self, *place, &one, now);
            return Applied::one(now, Reading::from_charged(&one, &charged)).with_remarks(kept);
        }
        let charges: SmallVec<[_; 8]> = charges.iter().map(OwnedCharge::as_charge).collect();
        // The places have both shards of a two-choices charge, one after the other.
        let named = charges.iter().flat_map(|charge| {
            let count = if charge.get_second_shard().is_some() { 2 } else { 1 };
            std::iter::repeat_n(charge, count)
        });
        let named: SmallVec<[_; 8]> = places.iter().copied().zip(named).collect();
        apply_list(self, &named, now)
    }

    fn adjust(&mut self, adjustments: &[OwnedAdjustment], places: &[usize]) -> Applied {
        let now = self.now;
        let adjustments: SmallVec<[_; 8]> =
            adjustments.iter().map(OwnedAdjustment::as_adjustment).collect();
        let named: SmallVec<[_; 8]> = places.iter().copied().zip(&adjustments).collect();
        adjust_list(self, &named, now)
    }

    fn keep(&mut self, place: usize, cell: StoredCell) {
        if let Some(place) = self.cells.get_mut(place) {
            *place = cell;
        }
    }
}

/// The furthest ahead that a server whose own clock shows `now` reads a time as what it is.
#[must_use]
pub fn latest(now: Timestamp) -> Timestamp {
    now.plus_micros(MOST_AHEAD)
}

/// Whether no place is named twice.
fn are_distinct(places: &[usize]) -> bool {
    let mut rest = places;
    while let Some((first, others)) = rest.split_first() {
        if others.contains(first) {
            return false;
        }
        rest = others;
    }
    true
}

impl CellStore for Replay {
    type Cell = usize;

    fn find(&mut self, place: usize, id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> Found {
        match self.cells.get_mut(place) {
            Some(StoredCell::Stored(record)) => {
                if let Some(caught_up) = record.caught_up(id, bucket, [now, self.latest]) {
                    *record = caught_up;
                }
                record.find(id, bucket, now)
            }
            // `answer` has rejected operations on foreign keys.
            Some(StoredCell::Absent | StoredCell::Reset | StoredCell::Foreign) | None => {
                Found::Absent
            }
        }
    }

    fn absent(&self, place: usize, id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> State {
        let phase = id.phase(bucket);
        let is_reset = matches!(self.cells.get(place), Some(StoredCell::Reset));
        match self.initialized_at.filter(|_| !is_reset) {
            None => bucket.absent(now, phase),
            Some(initialized_at) => {
                // A store that has lost its data holds no bucket, but clients may have used theirs
                // up. So each counts as empty at that time, and has gained since; it never holds
                // more than a new one.
                let empty = State { value: 0, ..bucket.absent(initialized_at, phase) };
                let State { value, ts } = match bucket.calendar() {
                    // As the script, which knows the window of the present only.
                    Some(calendar) => {
                        let start = calendar.start(now);
                        let windows = start.micros_since(initialized_at).div_ceil(bucket.step());
                        bucket.with_windows(State { value: 0, ts: start }, windows)
                    }
                    None => bucket.refresh(empty, now),
                };
                State { value: value.min(bucket.initial()), ts }
            }
        }
    }

    fn write(&mut self, place: usize, bucket: &Bucket, state: State, _now: Timestamp) {
        self.keep(place, StoredCell::Stored(BucketRecord::new(bucket, state)));
    }
}
