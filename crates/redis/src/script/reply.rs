//! The reply of the script.

use ::redis::Value;

use super::double;
use tollgate::backend::{BackendError, BucketRecord};
use tollgate::clock::Timestamp;
#[cfg(not(test))]
use tollgate_kit::replay::latest;
use tollgate_kit::replay::{Replay, StoredCell};

/// What the script returns: the time, and the buckets as they were before it ran.
#[derive(Debug)]
pub(crate) struct ScriptReply {
    now: Timestamp,
    cells: Vec<StoredCell>,
    /// The time at which every absent bucket was empty; `None` if absent buckets are full.
    initialized_at: Option<Timestamp>,
}

impl ScriptReply {
    /// Whether a value can be the reply to a batch of so many buckets. `init_counts` says whether
    /// it has the time of initialization.
    pub(crate) fn is_answer(answer: &Value, buckets: usize, init_counts: bool) -> bool {
        let parts = Parts::new(answer, init_counts);
        parts.is_some_and(|parts| parts.places(buckets).is_some())
            || Self::outside(answer).is_some()
    }

    /// The server's time, if what it was told of calendars does not hold then. It has done nothing.
    pub(crate) fn outside(answer: &Value) -> Option<Timestamp> {
        let Value::Array(answer) = answer else { return None };
        let [Value::Int(now)] = answer.as_slice() else { return None };
        Some(Timestamp::from_micros(*now))
    }

    /// Reads the reply to a batch of so many buckets; `None` if it cannot be that.
    pub(crate) fn read(answer: &Value, buckets: usize, init_counts: bool) -> Option<Self> {
        let parts = Parts::new(answer, init_counts)?;
        let mut stored = parts.stored.iter();
        let cells = parts.places(buckets)?.map(|place| match place {
            KeyContent::Stored => {
                stored.next().and_then(stored_record).map_or(StoredCell::Foreign, stored_cell)
            }
            KeyContent::Absent => StoredCell::Absent,
            KeyContent::Foreign => StoredCell::Foreign,
        });
        let cells = cells.collect();
        Some(Self { now: parts.now, cells, initialized_at: parts.initialized_at })
    }

    /// The replay of the operations that name the buckets at these places.
    pub(crate) fn into_replay(self, places: Vec<usize>) -> Replay {
        Replay::new([self.now, latest(self.now)], self.cells, places, foreign)
            .initialized_at(self.initialized_at)
    }
}

fn foreign(limit: &str) -> BackendError {
    let problem = format!(
        "a key of limit `{limit}` holds a value that is not a bucket (find it by its value, which is \
         not 48 bytes long or has the numbers of no quota, and reset it; or use another prefix)"
    );
    BackendError::undecidable("redis", problem)
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

/// What a record says: it may be the mark of a reset, as `main.lua` writes it.
fn stored_cell(record: BucketRecord) -> StoredCell {
    match record.to_numbers() {
        [0, _, 1, double::MAX, 0, 1] => StoredCell::Reset,
        _ => StoredCell::Stored(record),
    }
}

/// Reads a bucket: value, ts, gain, token, capacity, step.
pub(crate) fn stored_record(raw: &[u8; 48]) -> Option<BucketRecord> {
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

/// The servers of unit tests are told the time, which steps back at will: they read all times as
/// what they are.
#[cfg(test)]
fn latest(_: Timestamp) -> Timestamp {
    Timestamp::from_micros(i64::MAX)
}
