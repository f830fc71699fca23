//! The arguments of the function for several operations, and its answer.

use tokio_postgres::Row;

use tollgate::backend::BackendError;
use tollgate::backend::{BucketRecord, Charge};
use tollgate::clock::Timestamp;
use tollgate_kit::key_name::KeyName;
use tollgate_kit::operation::{NamedOperation, Operation, number_buckets};
#[cfg(not(test))]
use tollgate_kit::replay::latest;
use tollgate_kit::replay::{Replay, StoredCell};
use tollgate_kit::request::{RequestWriter, is_plain};

/// The arguments of one call: the names of the buckets, each once and in order, and the numbers.
pub(super) struct Request<'o> {
    names: Vec<&'o [u8]>,
    numbers: Vec<i64>,
    /// For each bucket that an operation names, in order, its place among the names.
    places: Vec<usize>,
}

impl<'o> Request<'o> {
    /// A request to a server whose clock is probably `around` this time.
    pub(super) fn new(
        operations: impl Iterator<Item = &'o NamedOperation> + Clone,
        around: Timestamp,
    ) -> Self {
        let (names, mut places) = number_buckets(operations.clone());
        // All calls lock their rows in the order of the names, so no two wait for each other.
        let mut order: Vec<(&KeyName, usize)> = names.into_iter().zip(0..).collect();
        order.sort_unstable_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        let mut sorted = vec![0; order.len()];
        for (place, (_, before)) in order.iter().enumerate() {
            if let Some(sorted) = sorted.get_mut(*before) {
                *sorted = place;
            }
        }
        for place in &mut places {
            *place = sorted.get(*place).copied().unwrap_or_default();
        }
        let mut writer = RequestWriter::new(around);
        match own_charges(operations.clone(), &places, order.len()) {
            Some(charges) => {
                writer.push(1);
                writer.push(OWN_CHARGES);
                for charge in charges {
                    let limit = writer.limit_numbers(charge.bucket(), charge.id());
                    limit.into_iter().for_each(|number| writer.push(number));
                    writer.push(charge.units());
                }
            }
            None => writer.operations(operations, &places),
        }
        let numbers = writer.numbers().collect();
        let names = order.into_iter().map(|(name, _)| name.as_ref()).collect();
        Self { names, numbers, places }
    }

    /// The names of the buckets, in order.
    pub(super) fn names(&self) -> &[&'o [u8]] {
        &self.names
    }

    pub(super) fn numbers(&self) -> &[i64] {
        &self.numbers
    }

    /// For each bucket that an operation names, in order, its place among the names.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    /// A request that does nothing with these buckets.
    pub(super) fn look(&self) -> Self {
        // No limit, and no operation.
        Self { names: self.names.clone(), numbers: vec![0, 0], places: Vec::new() }
    }

    /// Appends the time that the function sees, for tests.
    #[cfg(test)]
    pub(super) fn with_time(mut self, now: Timestamp) -> Self {
        self.numbers.push(now.as_micros());
        self
    }

    /// The server's time, if what it was told of calendars does not hold then. It has done nothing.
    pub(super) fn outside(&self, answer: &DecideRow) -> Option<Timestamp> {
        let is_outside = answer.stored.is_empty() && !self.names.is_empty();
        is_outside.then(|| Timestamp::from_micros(answer.now))
    }

    /// The replay of the operations on an answer to this request; `None` if it cannot be that.
    pub(super) fn replay(self, answer: &DecideRow) -> Option<Replay> {
        let (records, rest) = answer.stored.as_chunks::<6>();
        if !rest.is_empty() || records.len() != self.names.len() {
            return None;
        }
        let cells = records.iter().map(|numbers| match numbers {
            [.., 0] => StoredCell::Absent,
            numbers => {
                BucketRecord::from_numbers(*numbers).map_or(StoredCell::Foreign, StoredCell::Stored)
            }
        });
        let now = Timestamp::from_micros(answer.now);
        Some(Replay::new([now, latest(now)], cells.collect(), self.places, foreign))
    }
}

/// The code of charges that have each a bucket of its own. Nearly all batches are such charges, and the
/// server decides them in a fraction of the time.
const OWN_CHARGES: i64 = 5;

/// The charges in the order of their buckets, if each operation is one charge of a bucket of its own
/// that takes what is there, of a limit that begins full.
fn own_charges<'o>(
    operations: impl Iterator<Item = &'o NamedOperation> + Clone,
    places: &[usize],
    buckets: usize,
) -> Option<Vec<Charge<'o>>> {
    let own = |operation: &'o NamedOperation| {
        let Operation::Charges(charges) = operation.operation() else { return None };
        let [one] = charges.as_slice() else { return None };
        let one = one.as_charge();
        let begins_full = one.bucket().initial() == one.bucket().capacity();
        (is_plain(&one) && one.units() > 0 && begins_full).then_some(one)
    };
    let mut charges = operations.clone().map(own).collect::<Option<Vec<_>>>()?;
    if charges.len() != buckets || places.len() != buckets {
        return None;
    }
    for (operation, place) in operations.zip(places) {
        *charges.get_mut(*place)? = own(operation)?;
    }
    Some(charges)
}

/// The answer of the function: its time, and six numbers for each bucket as it was before, all of
/// them 0 if there was none.
pub(super) struct DecideRow {
    pub(super) now: i64,
    pub(super) stored: Vec<i64>,
}

impl DecideRow {
    /// Whether the bucket of this place had a row.
    pub(super) fn is_there(&self, place: usize) -> bool {
        let step = self.stored.as_chunks::<6>().0.get(place).map(|[.., step]| *step);
        step.is_some_and(|step| step != 0)
    }

    /// Reads a row; `None` if it is not that of the function.
    pub(super) fn read(row: &Row) -> Option<Self> {
        Some(Self { now: row.try_get(0).ok()?, stored: row.try_get(1).ok()? })
    }
}

fn foreign(limit: &str) -> BackendError {
    let problem = format!(
        "a row of limit `{limit}` holds numbers that are not those of a bucket (delete the row, or \
         use another prefix)"
    );
    BackendError::undecidable(super::store_name::STORE, problem)
}

/// The servers of unit tests are told the time, which steps back at will: they read all times as
/// what they are.
#[cfg(test)]
fn latest(_: Timestamp) -> Timestamp {
    Timestamp::from_micros(i64::MAX)
}
