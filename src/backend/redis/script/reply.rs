//! The reply: what the script found, from which the client computes the outcome of each operation.
//!
//! # Design
//!
//! The script returns what the buckets held before it ran. The client replays the operations on these
//! states with the same formula, so its answers are as exact as in memory and cost the server nothing.

use ::redis::Value;

use super::double;
use super::request::counts_as;
use crate::algebra::{Bucket, Charged, State, Verdict, charge, rescale};
use crate::backend::redis::operation::{Operation, OwnedCharge, OwnedRefund};
use crate::backend::transaction::{self, Cells, Few, Kept, changes};
use crate::backend::{Applied, BackendError, BucketId, Reading, Refunded};
use crate::clock::Timestamp;

/// The buckets of a batch, as the operations find them one after the other.
#[derive(Debug)]
pub(in crate::backend::redis) struct ScriptReply {
    now: Timestamp,
    cells: Vec<StoredValue>,
    /// When every absent bucket was empty; `None` if absent ones are full.
    initialized_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
enum StoredValue {
    Absent,
    Stored(Bucket, State),
    /// Something that no limiter stored.
    Foreign,
}

/// The outcome of an operation.
#[derive(Debug)]
pub(in crate::backend::redis) enum OperationOutcome {
    Applied(Applied),
    Refunded(Refunded),
    Reset,
}

impl OperationOutcome {
    /// The outcome of charges.
    pub(in crate::backend::redis) fn applied(self) -> Result<Applied, BackendError> {
        match self {
            Self::Applied(applied) => Ok(applied),
            Self::Refunded(_) | Self::Reset => Err(BackendError::incomplete()),
        }
    }

    /// The outcome of refunds.
    pub(in crate::backend::redis) fn refunded(self) -> Result<Refunded, BackendError> {
        match self {
            Self::Refunded(refunded) => Ok(refunded),
            Self::Applied(_) | Self::Reset => Err(BackendError::incomplete()),
        }
    }
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
        let initialized_at = match raw.last() {
            Some(Value::BulkString(at)) if init_counts => {
                Timestamp::from_micros(std::str::from_utf8(at).ok()?.parse().ok()?)
            }
            _ => now,
        };
        let cells = raw.iter().take(buckets).map(StoredValue::read).collect();
        Some(Self { now, cells, initialized_at: init_counts.then_some(initialized_at) })
    }

    /// Replays an operation on the buckets at these places.
    pub(in crate::backend::redis) fn replay(
        &mut self,
        operation: &Operation,
        places: &[usize],
    ) -> Result<OperationOutcome, BackendError> {
        if let Operation::Resets(_) = operation {
            for &place in places {
                self.keep(place, StoredValue::Absent);
            }
            return Ok(OperationOutcome::Reset);
        }
        let foreign = |place: &&usize| {
            !matches!(self.cells.get(**place), Some(StoredValue::Absent | StoredValue::Stored(..)))
        };
        if let Some(place) = places.iter().position(|place| foreign(&place)) {
            let names = operation.names();
            let name = names.get(place).map(|name| String::from_utf8_lossy(name.as_ref()));
            let name = name.unwrap_or_default();
            let problem = format!(
                "the key `{name}` holds something that is no bucket (reset it, or use another prefix)"
            );
            return Err(BackendError::unavailable("redis", problem));
        }
        Ok(match operation {
            Operation::Charges(charges) => OperationOutcome::Applied(self.apply(charges, places)),
            Operation::Refunds(refunds) => OperationOutcome::Refunded(self.refund(refunds, places)),
            Operation::Resets(_) => OperationOutcome::Reset,
        })
    }

    fn apply(&mut self, charges: &[OwnedCharge], places: &[usize]) -> Applied {
        let now = self.now;
        if let ([one], [place]) = (charges, places) {
            return self.apply_one(one, *place);
        }
        let charges: Few<_> = charges.iter().map(OwnedCharge::charge).collect();
        let named = charges.iter().flat_map(|charge| {
            let count = if charge.other().is_some() { 2 } else { 1 };
            std::iter::repeat_n(charge, count)
        });
        let named: Few<_> = places.iter().copied().zip(named).collect();
        transaction::apply(self, &named, now)
    }

    /// As `apply`, without lists.
    fn apply_one(&mut self, one: &OwnedCharge, place: usize) -> Applied {
        let (asked, now) = (one.charge(), self.now);
        let state = Cells::read(self, place, asked.id(), asked.bucket(), now);
        // `replay` has rejected foreign ones.
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

    fn refund(&mut self, refunds: &[OwnedRefund], places: &[usize]) -> Refunded {
        let now = self.now;
        let refunds: Few<_> = refunds.iter().map(OwnedRefund::refund).collect();
        let named: Few<_> = places.iter().copied().zip(&refunds).collect();
        transaction::refund(self, &named, now)
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

impl Cells for ScriptReply {
    type Id = usize;

    fn read(
        &mut self,
        place: usize,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Option<State> {
        match self.cells.get(place)? {
            StoredValue::Absent => Some(self.absent(id, bucket)),
            &StoredValue::Stored(numbers, state) => {
                let same = counts_as(&numbers, bucket)
                    && bucket.has_window_at(state.ts, || id.phase(bucket));
                if same {
                    Some(state)
                } else {
                    Some(rescale(&numbers, bucket, state, now, id.phase(bucket)))
                }
            }
            StoredValue::Foreign => None,
        }
    }

    fn is_stored(&mut self, place: usize) -> bool {
        matches!(self.cells.get(place), Some(StoredValue::Stored(..)))
    }

    fn write(&mut self, place: usize, bucket: &Bucket, kept: Kept, _now: Timestamp) {
        match kept {
            Kept::Taken(state) => self.keep(place, StoredValue::Stored(*bucket, state)),
            // Nothing was taken: stored only if this is the first use of a bucket that fills from then on.
            Kept::NotTaken(state) if !bucket.is_droppable_when_full() && !self.is_stored(place) => {
                self.keep(place, StoredValue::Stored(*bucket, state));
            }
            Kept::NotTaken(_) => {}
        }
    }
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
        let mut numbers = numbers.iter().map(|bytes| double::to_i64(f64::from_le_bytes(*bytes)));
        let mut next = || numbers.next().flatten();
        let (value, ts) = (next()?, Timestamp::from_micros(next()?));
        let bucket = Bucket::from_stored(next()?, next()?, next()?, next()?)?;
        (value <= bucket.capacity()).then_some(Self::Stored(bucket, State { value, ts }))
    }
}
