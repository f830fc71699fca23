//! What the script has found, and what came of each order: the client works it out by the same formula.

use ::redis::Value;

use super::batch::counts_as;
use super::number::whole;
use super::order::{Order, OwnAdjustment, OwnCharge};
use crate::algebra::{Bucket, Charged, State, Verdict, charge, rescale};
use crate::backend::transaction::{self, Cells, Few, Kept, changes};
use crate::backend::{Applied, BackendError, BucketId, Reading};
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
    Stored(Bucket, State),
    /// Something that no limiter has stored.
    Foreign,
}

/// What came of an order.
#[derive(Debug)]
pub(super) enum Outcome {
    Applied(Applied),
    Reset,
}

impl Outcome {
    /// What charges or adjustments came to.
    pub(super) fn applied(self) -> Result<Applied, BackendError> {
        match self {
            Self::Applied(applied) => Ok(applied),
            Self::Reset => Err(BackendError::incomplete()),
        }
    }
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

    /// Carries an order out on these of the buckets.
    pub(super) fn carry_out(
        &mut self,
        order: &Order,
        places: &[usize],
    ) -> Result<Outcome, BackendError> {
        if let Order::Resets(_) = order {
            for &place in places {
                self.keep(place, Cell::Absent);
            }
            return Ok(Outcome::Reset);
        }
        let foreign = |place: &&usize| {
            !matches!(self.cells.get(**place), Some(Cell::Absent | Cell::Stored(..)))
        };
        if let Some(place) = places.iter().position(|place| foreign(&place)) {
            let names = order.names();
            let name = names.get(place).map(|name| String::from_utf8_lossy(name.as_ref()));
            let name = name.unwrap_or_default();
            let problem = format!(
                "the key `{name}` holds something that is no bucket (reset it, or use another prefix)"
            );
            return Err(BackendError::unavailable("redis", problem));
        }
        Ok(match order {
            Order::Charges(charges) => Outcome::Applied(self.apply(charges, places)),
            Order::Adjustments(all) => Outcome::Applied(self.adjust(all, places)),
            Order::Resets(_) => Outcome::Reset,
        })
    }

    fn apply(&mut self, charges: &[OwnCharge], places: &[usize]) -> Applied {
        let now = self.now;
        if let ([one], [place]) = (charges, places) {
            return self.apply_one(one, *place);
        }
        let charges: Few<_> = charges.iter().map(OwnCharge::charge).collect();
        let named = charges.iter().flat_map(|charge| {
            let count = if charge.other().is_some() { 2 } else { 1 };
            std::iter::repeat_n(charge, count)
        });
        let named: Few<_> = places.iter().copied().zip(named).collect();
        transaction::apply(self, &named, now)
    }

    /// The same, where there is no list to be kept.
    fn apply_one(&mut self, one: &OwnCharge, place: usize) -> Applied {
        let (asked, now) = (one.charge(), self.now);
        let state = Cells::read(self, place, asked.id(), asked.bucket(), now);
        // Foreign ones were sorted out.
        let state = state.unwrap_or_else(|| self.absent(asked.id(), asked.bucket()));
        let charged: Charged = charge(asked.bucket(), state, asked.units(), asked.terms(), now);
        if changes(&asked) {
            let kept = match charged.verdict() {
                Verdict::Refused => Kept::NotTaken(charged.before()),
                Verdict::Admitted | Verdict::Reserved => Kept::Taken(charged.after()),
            };
            self.write(place, asked.bucket(), kept, now);
        }
        Applied::one(now, Reading::of(&asked, &charged))
    }

    fn adjust(&mut self, adjustments: &[OwnAdjustment], places: &[usize]) -> Applied {
        let now = self.now;
        let adjustments: Few<_> = adjustments.iter().map(OwnAdjustment::adjustment).collect();
        let named: Few<_> = places.iter().copied().zip(&adjustments).collect();
        transaction::adjust(self, &named, now)
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

impl Cells for Found {
    type Id = usize;

    fn read(
        &mut self,
        place: usize,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Option<State> {
        match self.cells.get(place)? {
            Cell::Absent => Some(self.absent(id, bucket)),
            &Cell::Stored(numbers, state) => {
                let same = counts_as(&numbers, bucket)
                    && bucket.has_window_at(state.ts, || id.phase(bucket));
                if same {
                    Some(state)
                } else {
                    Some(rescale(&numbers, bucket, state, now, id.phase(bucket)))
                }
            }
            Cell::Foreign => None,
        }
    }

    fn is_stored(&mut self, place: usize) -> bool {
        matches!(self.cells.get(place), Some(Cell::Stored(..)))
    }

    fn write(&mut self, place: usize, bucket: &Bucket, kept: Kept, _now: Timestamp) {
        match kept {
            Kept::Taken(state) => self.keep(place, Cell::Stored(*bucket, state)),
            // Nothing was taken: only a bucket that begins to fill with its first use is stored for that.
            Kept::NotTaken(state) if !bucket.forgets() && !self.is_stored(place) => {
                self.keep(place, Cell::Stored(*bucket, state));
            }
            Kept::NotTaken(_) => {}
        }
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
        let mut numbers = numbers.iter().map(|bytes| whole(f64::from_le_bytes(*bytes)));
        let mut next = || numbers.next().flatten();
        let (value, ts) = (next()?, Timestamp::from_micros(next()?));
        let bucket = Bucket::stored(next()?, next()?, next()?, next()?)?;
        (value <= bucket.capacity()).then_some(Self::Stored(bucket, State { value, ts }))
    }
}
