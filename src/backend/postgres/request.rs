//! The arguments of the function for several operations, and its answer.

use tokio_postgres::Row;

use crate::backend::BackendError;
use crate::backend::BucketRecord;
use crate::backend::remote::key_name::KeyName;
use crate::backend::remote::operation::{Operation, number_buckets};
use crate::backend::remote::replay::{Replay, StoredCell};
use crate::backend::remote::request::RequestWriter;
use crate::clock::Timestamp;

/// The arguments of one call: the names of the buckets, each once and in order, and the numbers.
pub(super) struct Request<'o> {
    names: Vec<&'o [u8]>,
    numbers: Vec<i64>,
    /// For each bucket that an operation names, in order, its place among the names.
    places: Vec<usize>,
}

impl<'o> Request<'o> {
    pub(super) fn new(operations: impl Iterator<Item = &'o Operation> + Clone) -> Self {
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
        let mut writer = RequestWriter::default();
        writer.operations(operations, &places);
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

    /// Appends the time that the function sees, for tests.
    #[cfg(test)]
    pub(super) fn with_time(mut self, now: Timestamp) -> Self {
        self.numbers.push(now.as_micros());
        self
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
        Some(Replay::new(now, cells.collect(), self.places, foreign))
    }
}

/// The answer of the function: its time, and six numbers for each bucket as it was before, all of
/// them 0 if there was none.
pub(super) struct DecideRow {
    pub(super) now: i64,
    pub(super) stored: Vec<i64>,
}

impl DecideRow {
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
