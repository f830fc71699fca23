//! What the script has found. The client works out what came of each order, by the same formula.

use ::redis::Value;
use smallvec::SmallVec;

use super::number::whole;
use super::order::{Order, OwnAdjustment, OwnCharge};
use crate::algebra::{Bucket, State};
use crate::backend::apply::{CellStore, adjust_list, apply_list, apply_one};
use crate::backend::{Applied, BackendError, BucketId, BucketRecord, Reading};
use crate::clock::Timestamp;

/// The buckets of a batch as the orders find them, one after the other.
#[derive(Debug)]
pub(super) struct Found {
    now: Timestamp,
    cells: Vec<Cell>,
    /// When every bucket was empty that is absent, if absent ones are not simply full.
    born: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
enum Cell {
    Absent,
    Stored(BucketRecord),
    /// Something that no limiter has stored.
    Foreign,
}

impl Found {
    /// Whether this can be an answer about so many keys.
    pub(super) fn is_answer(answer: &Value, keys: usize) -> bool {
        let Value::Array(answer) = answer else { return false };
        matches!(answer.as_slice(), [Value::Int(_), Value::Array(raw)] if raw.len() == keys)
    }

    /// Reads an answer about so many buckets, and about the birth of the store if that `counts`.
    pub(super) fn read(answer: Value, buckets: usize, birth_counts: bool) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let [Value::Int(now), Value::Array(raw)] = answer.as_slice() else { return None };
        if raw.len() != buckets.saturating_add(usize::from(birth_counts)) {
            return None;
        }
        let now = Timestamp::from_micros(*now);
        let born = match raw.last() {
            Some(Value::BulkString(at)) if birth_counts => {
                Timestamp::from_micros(std::str::from_utf8(at).ok()?.parse().ok()?)
            }
            _ => now,
        };
        let cells = raw.iter().take(buckets).map(Cell::read).collect();
        Some(Self { now, cells, born: birth_counts.then_some(born) })
    }

    /// Carries an order out on these of the buckets. A reset has no readings.
    pub(super) fn carry_out(
        &mut self,
        order: &Order,
        places: &[usize],
    ) -> Result<Applied, BackendError> {
        match order {
            Order::Charges(charges) => {
                self.refuse_foreign(order, places)?;
                Ok(self.apply(charges, places))
            }
            Order::Adjustments(all) => {
                self.refuse_foreign(order, places)?;
                Ok(self.adjust(all, places))
            }
            Order::Resets(_) => {
                places.iter().for_each(|&place| self.keep(place, Cell::Absent));
                Ok(Applied::many(self.now, Vec::new()))
            }
        }
    }

    /// # Errors
    ///
    /// If one of these keys holds something that no limiter has stored.
    fn refuse_foreign(&self, order: &Order, places: &[usize]) -> Result<(), BackendError> {
        let foreign =
            |place: &usize| !matches!(self.cells.get(*place), Some(Cell::Absent | Cell::Stored(_)));
        let Some(place) = places.iter().position(foreign) else { return Ok(()) };
        let names = order.names();
        let name = names.get(place).map(|name| String::from_utf8_lossy(name.as_ref()));
        let name = name.unwrap_or_default();
        let problem = format!(
            "the key `{name}` holds something that is no bucket (reset it, or use another prefix)"
        );
        Err(BackendError::unavailable("redis", problem))
    }

    fn apply(&mut self, charges: &[OwnCharge], places: &[usize]) -> Applied {
        let now = self.now;
        if let ([one], [place]) = (charges, places) {
            let one = one.charge();
            let charged = apply_one(self, *place, &one, now);
            return Applied::one(now, Reading::from_charged(&one, &charged));
        }
        let charges: SmallVec<[_; 8]> = charges.iter().map(OwnCharge::charge).collect();
        let named = charges.iter().flat_map(|charge| {
            let count = if charge.get_second_shard().is_some() { 2 } else { 1 };
            std::iter::repeat_n(charge, count)
        });
        let named: SmallVec<[_; 8]> = places.iter().copied().zip(named).collect();
        apply_list(self, &named, now)
    }

    fn adjust(&mut self, adjustments: &[OwnAdjustment], places: &[usize]) -> Applied {
        let now = self.now;
        let adjustments: SmallVec<[_; 8]> =
            adjustments.iter().map(OwnAdjustment::adjustment).collect();
        let named: SmallVec<[_; 8]> = places.iter().copied().zip(&adjustments).collect();
        adjust_list(self, &named, now)
    }

    fn absent(&self, id: BucketId<'_>, bucket: &Bucket) -> State {
        let phase = id.phase(bucket);
        match self.born {
            None => bucket.absent(self.now, phase),
            Some(born) => {
                let empty = State { value: 0, ..bucket.absent(born, phase) };
                let State { value, ts } = bucket.refresh(empty, self.now);
                State { value: value.min(bucket.initial()), ts }
            }
        }
    }

    fn keep(&mut self, place: usize, cell: Cell) {
        if let Some(place) = self.cells.get_mut(place) {
            *place = cell;
        }
    }
}

impl CellStore for Found {
    type Cell = usize;

    fn read(&mut self, place: usize, id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> State {
        match self.cells.get(place) {
            Some(Cell::Stored(record)) => record.state_in(id, bucket, now),
            // An order on a foreign key was answered by an error before it came here.
            Some(Cell::Absent | Cell::Foreign) | None => self.absent(id, bucket),
        }
    }

    fn is_stored(&mut self, place: usize) -> bool {
        matches!(self.cells.get(place), Some(Cell::Stored(_)))
    }

    fn write(&mut self, place: usize, bucket: &Bucket, state: State, _now: Timestamp) {
        self.keep(place, Cell::Stored(BucketRecord::new(bucket, state)));
    }
}

impl Cell {
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
        let mut whole_numbers = [0; 6];
        for (number, bytes) in whole_numbers.iter_mut().zip(numbers) {
            *number = whole(f64::from_le_bytes(*bytes))?;
        }
        BucketRecord::from_numbers(whole_numbers).map(Self::Stored)
    }
}
