//! The reply of the script, and the replay that computes the outcome of each operation from it.
//!
//! # Design
//!
//! The script returns the buckets as they were before it ran. The client replays the operations on
//! these states with the same formula. So its answers are as exact as in memory, and cost the
//! server nothing.

use ::redis::Value;
use smallvec::SmallVec;

use super::double;
use crate::algebra::{Bucket, State, Verdict};
use crate::backend::apply::{CellStore, adjust_list, apply_list, apply_one};
use crate::backend::redis::operation::{NamedAdjustment, NamedCharge, Operation};
use crate::backend::{Applied, BackendError, BucketId, BucketRecord, Reading};
use crate::clock::Timestamp;

/// The buckets of a batch, as the operations find them one after the other.
#[derive(Debug)]
pub(in crate::backend::redis) struct ScriptReply {
    now: Timestamp,
    cells: Vec<StoredValue>,
    /// The time at which every absent bucket was empty; `None` if absent buckets are full.
    initialized_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum StoredValue {
    Absent,
    Stored(BucketRecord),
    /// Something that no limiter has stored.
    Foreign,
}

impl ScriptReply {
    /// Whether a value can be the reply to a batch of so many buckets. `init_counts` says whether
    /// it has the time of initialization.
    pub(in crate::backend::redis) fn is_answer(
        answer: &Value,
        buckets: usize,
        init_counts: bool,
    ) -> bool {
        let parts = Parts::new(answer, init_counts);
        parts.is_some_and(|parts| parts.places(buckets).is_some())
    }

    /// Reads the reply to a batch of so many buckets; `None` if it cannot be that.
    pub(in crate::backend::redis) fn read(
        answer: &Value,
        buckets: usize,
        init_counts: bool,
    ) -> Option<Self> {
        let parts = Parts::new(answer, init_counts)?;
        let mut stored = parts.stored.iter();
        let cells = parts.places(buckets)?.map(|place| match place {
            KeyContent::Stored => stored
                .next()
                .and_then(StoredValue::stored)
                .map_or(StoredValue::Foreign, StoredValue::Stored),
            KeyContent::Absent => StoredValue::Absent,
            KeyContent::Foreign => StoredValue::Foreign,
        });
        let cells = cells.collect();
        Some(Self { now: parts.now, cells, initialized_at: parts.initialized_at })
    }

    /// Replays an operation on the buckets at these places. A reset has no readings.
    pub(in crate::backend::redis) fn replay(
        &mut self,
        operation: &Operation,
        places: &[usize],
    ) -> Result<Applied, BackendError> {
        match operation {
            Operation::Charges(charges) => {
                self.reject_foreign(operation, places)?;
                Ok(self.apply(charges, places))
            }
            Operation::Adjustments(adjustments) => {
                self.reject_foreign(operation, places)?;
                Ok(self.adjust(adjustments, places))
            }
            Operation::Resets(_) => {
                places.iter().for_each(|&place| self.keep(place, StoredValue::Absent));
                Ok(Applied::many(self.now, Vec::new()))
            }
        }
    }

    /// The answer to these charges on the buckets as they are now, if it is a refusal that changes
    /// nothing.
    pub(in crate::backend::redis) fn refusal(
        &self,
        operation: &Operation,
        places: &[usize],
    ) -> Option<Applied> {
        let Operation::Charges(charges) = operation else { return None };
        if !charges.iter().all(|charge| charge.takes) || !are_distinct(places) {
            return None;
        }
        let cells: Vec<_> =
            places.iter().map(|&place| self.cells.get(place).copied()).collect::<Option<_>>()?;
        // On a copy: the replay of a refusal may still store a converted bucket.
        let mut tried = Self { cells: cells.clone(), ..*self };
        let own: SmallVec<[_; 8]> = (0..cells.len()).collect();
        let applied = tried.replay(operation, &own).ok()?;
        (applied.verdict() == Verdict::Refused && tried.cells == cells).then_some(applied)
    }

    /// # Errors
    ///
    /// If one of these keys holds a value that no limiter has stored.
    fn reject_foreign(&self, operation: &Operation, places: &[usize]) -> Result<(), BackendError> {
        let foreign = |place: &usize| {
            !matches!(self.cells.get(*place), Some(StoredValue::Absent | StoredValue::Stored(_)))
        };
        let Some(place) = places.iter().position(foreign) else { return Ok(()) };
        // Errors go to logs, and a key may be the name of a person.
        let limit = operation.limits().nth(place).unwrap_or_default();
        let problem = format!(
            "a key of limit `{limit}` holds a value that is not a bucket (find it by the length of its \
             value, which is not 48 bytes, and reset it; or use another prefix)"
        );
        Err(BackendError::undecidable("redis", problem))
    }

    fn apply(&mut self, charges: &[NamedCharge], places: &[usize]) -> Applied {
        let now = self.now;
        if let ([one], [place]) = (charges, places) {
            let one = one.charge();
            let charged = apply_one(self, *place, &one, now);
            return Applied::one(now, Reading::from_charged(&one, &charged));
        }
        let charges: SmallVec<[_; 8]> = charges.iter().map(NamedCharge::charge).collect();
        let named = charges.iter().flat_map(|charge| {
            let count = if charge.get_second_shard().is_some() { 2 } else { 1 };
            std::iter::repeat_n(charge, count)
        });
        let named: SmallVec<[_; 8]> = places.iter().copied().zip(named).collect();
        apply_list(self, &named, now)
    }

    fn adjust(&mut self, adjustments: &[NamedAdjustment], places: &[usize]) -> Applied {
        let now = self.now;
        let adjustments: SmallVec<[_; 8]> =
            adjustments.iter().map(NamedAdjustment::adjustment).collect();
        let named: SmallVec<[_; 8]> = places.iter().copied().zip(&adjustments).collect();
        adjust_list(self, &named, now)
    }

    fn stored(
        &self,
        place: usize,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Option<State> {
        match self.cells.get(place) {
            Some(StoredValue::Stored(record)) => record.state_in(id, bucket, now),
            // `replay` has rejected operations on foreign keys.
            Some(StoredValue::Absent | StoredValue::Foreign) | None => None,
        }
    }

    fn absent(&self, id: BucketId<'_>, bucket: &Bucket) -> State {
        let phase = id.phase(bucket);
        match self.initialized_at {
            None => bucket.absent(self.now, phase),
            Some(initialized_at) => {
                let empty = State { value: 0, ..bucket.absent(initialized_at, phase) };
                let State { value, ts } = bucket.refresh(empty, self.now);
                State { value: value.min(bucket.initial()), ts }
            }
        }
    }

    fn keep(&mut self, place: usize, cell: StoredValue) {
        if let Some(place) = self.cells.get_mut(place) {
            *place = cell;
        }
    }
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

impl CellStore for ScriptReply {
    type Cell = usize;

    fn read(&mut self, place: usize, id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> State {
        self.stored(place, id, bucket, now).unwrap_or_else(|| self.absent(id, bucket))
    }

    fn is_stored(
        &mut self,
        place: usize,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool {
        self.stored(place, id, bucket, now).is_some()
    }

    fn is_converted(
        &mut self,
        place: usize,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool {
        matches!(
            self.cells.get(place),
            Some(StoredValue::Stored(record)) if record.is_converted_in(id, bucket, now)
        )
    }

    fn write(&mut self, place: usize, bucket: &Bucket, state: State, _now: Timestamp) {
        self.keep(place, StoredValue::Stored(BucketRecord::new(bucket, state)));
    }
}

/// The parts of a reply, as `batch.lua` lists them.
struct Parts<'v> {
    now: Timestamp,
    initialized_at: Option<Timestamp>,
    stored: &'v [[u8; 48]],
    /// The places of the keys that have no bucket, from 1 on; below zero where something else is.
    others: &'v [Value],
}

/// What a key holds.
#[derive(Clone, Copy)]
enum KeyContent {
    /// The next of the stored values.
    Stored,
    Absent,
    Foreign,
}

impl<'v> Parts<'v> {
    fn new(answer: &'v Value, init_counts: bool) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let [Value::Int(now), initialized_at, Value::BulkString(stored), others @ ..] =
            answer.as_slice()
        else {
            return None;
        };
        let initialized_at = match initialized_at {
            Value::Int(at) if init_counts => Some(Timestamp::from_micros(*at)),
            Value::Nil if !init_counts => None,
            _ => return None,
        };
        let (stored, rest) = stored.as_chunks();
        let now = Timestamp::from_micros(*now);
        rest.is_empty().then_some(Self { now, initialized_at, stored, others })
    }

    /// What each of so many keys holds; `None` if the parts do not match that number.
    fn places(&self, buckets: usize) -> Option<impl Iterator<Item = KeyContent>> {
        if self.stored.len().checked_add(self.others.len())? != buckets {
            return None;
        }
        let mut before = 0;
        for other in self.others {
            let Value::Int(place) = other else { return None };
            let place = usize::try_from(place.checked_abs()?).ok()?;
            if place <= before || place > buckets {
                return None;
            }
            before = place;
        }
        let mut others = self.others.iter().peekable();
        Some((1..=buckets).map(move |place| {
            let is_here = |other: &&Value| matches!(other, Value::Int(at) if usize::try_from(at.unsigned_abs()) == Ok(place));
            match others.next_if(is_here) {
                None => KeyContent::Stored,
                Some(Value::Int(1..)) => KeyContent::Absent,
                Some(_) => KeyContent::Foreign,
            }
        }))
    }
}

impl StoredValue {
    /// Reads a bucket: value, ts, gain, token, capacity, step.
    fn stored(raw: &[u8; 48]) -> Option<BucketRecord> {
        let (numbers, _) = raw.as_chunks::<8>();
        let mut whole = [0; 6];
        for (number, bytes) in whole.iter_mut().zip(numbers) {
            *number = double::to_i64(f64::from_le_bytes(*bytes))?;
        }
        let [value, ts, .., capacity, step] = whole;
        // No quota lets a bucket owe more. The script could not count it: such a bucket gains more
        // than a double holds exactly before it is full.
        let is_counted = capacity.checked_sub(value)? <= double::MAX;
        // No server has a time before the epoch, so only the window around the epoch started before
        // it. Lua computes the remainder of an earlier time inexactly.
        let is_since_epoch = ts > step.checked_abs()?.checked_neg()?;
        let record = BucketRecord::from_numbers(whole)?;
        (is_counted && is_since_epoch).then_some(record)
    }
}
