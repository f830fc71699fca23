//! The reply: what the script found, from which the client computes the outcome of each operation.
//!
//! # Design
//!
//! The script returns what the buckets held before it ran. The client replays the operations on these
//! states with the same formula, so its answers are as exact as in memory and cost the server nothing.

use ::redis::Value;
use smallvec::SmallVec;

use super::double;
use crate::algebra::{Bucket, State, Verdict};
use crate::backend::apply::{CellStore, adjust_list, apply_list, apply_one};
use crate::backend::redis::operation::{Operation, OwnedAdjustment, OwnedCharge};
use crate::backend::{Applied, BackendError, BucketId, BucketRecord, Reading};
use crate::clock::Timestamp;

/// The buckets of a batch, as the operations find them one after the other.
#[derive(Debug)]
pub(in crate::backend::redis) struct ScriptReply {
    now: Timestamp,
    cells: Vec<StoredValue>,
    /// When every absent bucket was empty; `None` if absent ones are full.
    initialized_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum StoredValue {
    Absent,
    Stored(BucketRecord),
    /// Something that no limiter stored.
    Foreign,
}

impl ScriptReply {
    /// Whether a value can be the reply about so many keys.
    pub(in crate::backend::redis) fn is_answer(answer: &Value, keys: usize) -> bool {
        let Value::Array(answer) = answer else { return false };
        matches!(answer.as_slice(), [Value::Int(_), Value::Array(raw)] if raw.len() == keys)
    }

    /// Reads a reply about so many buckets, and about the time of initialization if that counts.
    pub(in crate::backend::redis) fn read(
        answer: Value,
        buckets: usize,
        init_counts: bool,
    ) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let [Value::Int(now), Value::Array(raw)] = answer.as_slice() else { return None };
        if raw.len() != buckets.saturating_add(usize::from(init_counts)) {
            return None;
        }
        let now = Timestamp::from_micros(*now);
        let noted = match raw.last() {
            Some(Value::BulkString(noted)) if init_counts => initialization(noted),
            _ => None,
        };
        // The script has overwritten anything else by its own time.
        let initialized_at = noted.unwrap_or(now);
        let cells = raw.iter().take(buckets).map(StoredValue::read).collect();
        Some(Self { now, cells, initialized_at: init_counts.then_some(initialized_at) })
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

    /// What these charges are told on the buckets as they are now, if that is a refusal that changes
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
        let mut tried = Self { cells: cells.clone(), ..*self };
        let own: SmallVec<[_; 8]> = (0..cells.len()).collect();
        let applied = tried.replay(operation, &own).ok()?;
        (applied.verdict() == Verdict::Refused && tried.cells == cells).then_some(applied)
    }

    /// # Errors
    ///
    /// If one of these keys holds something that no limiter has stored.
    fn reject_foreign(&self, operation: &Operation, places: &[usize]) -> Result<(), BackendError> {
        let foreign = |place: &usize| {
            !matches!(self.cells.get(*place), Some(StoredValue::Absent | StoredValue::Stored(_)))
        };
        let Some(place) = places.iter().position(foreign) else { return Ok(()) };
        // Errors go to logs, and a key may be the name of a person.
        let limit = operation.limits().nth(place).unwrap_or_default();
        let problem = format!(
            "a key of limit `{limit}` holds something that is no bucket (find it by the length of its \
             value, which is not 48 bytes, and reset it; or use another prefix)"
        );
        Err(BackendError::undecidable("redis", problem))
    }

    fn apply(&mut self, charges: &[OwnedCharge], places: &[usize]) -> Applied {
        let now = self.now;
        if let ([one], [place]) = (charges, places) {
            let one = one.charge();
            let charged = apply_one(self, *place, &one, now);
            return Applied::one(now, Reading::from_charged(&one, &charged));
        }
        let charges: SmallVec<[_; 8]> = charges.iter().map(OwnedCharge::charge).collect();
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
            adjustments.iter().map(OwnedAdjustment::adjustment).collect();
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

/// The time of initialization, as the script reads it; `None` if the value is none.
fn initialization(noted: &[u8]) -> Option<Timestamp> {
    if noted.len() > 16 || !noted.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let micros: i64 = std::str::from_utf8(noted).ok()?.parse().ok()?;
    (micros < double::MAX).then(|| Timestamp::from_micros(micros))
}

impl StoredValue {
    fn read(raw: &Value) -> Self {
        match raw {
            Value::Nil => Self::Absent,
            Value::BulkString(raw) => Self::stored(raw).unwrap_or(Self::Foreign),
            _ => Self::Foreign,
        }
    }

    /// Value, ts, gain, token, capacity, step.
    fn stored(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; 48] = raw.try_into().ok()?;
        let (numbers, _) = raw.as_chunks::<8>();
        let mut whole = [0; 6];
        for (number, bytes) in whole.iter_mut().zip(numbers) {
            *number = double::to_i64(f64::from_le_bytes(*bytes))?;
        }
        let [value, ts, .., capacity, step] = whole;
        // No quota lets a bucket owe more. The script could not count it: what such a bucket gains
        // is more than a double holds exactly, and still may not fill it.
        let is_counted = capacity.checked_sub(value)? <= double::MAX;
        // No server has a time before the epoch, so only the window around that began before it. In Lua
        // the remainder of an earlier time is not exact.
        let is_since_epoch = ts > step.checked_abs()?.checked_neg()?;
        let record = BucketRecord::from_numbers(whole)?;
        (is_counted && is_since_epoch).then_some(Self::Stored(record))
    }
}
