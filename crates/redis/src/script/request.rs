//! The request to the script: several operations as one list of numbers.

use smallvec::SmallVec;

use super::double;
use tollgate::backend::OwnedCharge;
use tollgate::clock::Timestamp;
use tollgate_kit::key_name::KeyName;
use tollgate_kit::operation::{NamedOperation, Operation, number_buckets};
use tollgate_kit::request::{RequestWriter, is_plain, length};

/// One call of the script: the buckets of several operations, each once, and the numbers.
pub(crate) struct ScriptRequest<'o> {
    keys: Vec<&'o KeyName>,
    /// For each bucket that an operation names, in order, its place among the keys.
    places: Vec<usize>,
    argument: Vec<u8>,
}

impl<'o> ScriptRequest<'o> {
    /// Writes the request for a server whose clock is probably `around` this time. `init_counts` says
    /// whether absent buckets count as empty at the initialization.
    pub(crate) fn new(
        operations: impl Iterator<Item = &'o NamedOperation> + Clone,
        init_counts: bool,
        around: Timestamp,
    ) -> Self {
        let (keys, places) = number_buckets(operations.clone());
        let plain = if init_counts { None } else { plain(operations.clone(), &places) };
        let argument = plain.unwrap_or_else(|| {
            let mut writer = RequestWriter::new(around);
            writer.operations(operations, &places);
            argument(if init_counts { kind::INITIALIZED } else { kind::GENERAL }, &writer)
        });
        Self { keys, places, argument }
    }

    /// The names of its buckets.
    pub(crate) fn keys(&self) -> &[&'o KeyName] {
        &self.keys
    }

    /// The numbers, as `batch.lua` reads them.
    pub(crate) fn argument(&self) -> &[u8] {
        &self.argument
    }

    /// Appends the time that the script sees, for tests.
    #[cfg(test)]
    pub(crate) fn with_time(mut self, now: Timestamp) -> Self {
        push(&mut self.argument, double::from_i64(now.as_micros()));
        self
    }

    /// For each bucket that an operation names, in order, its place among the keys.
    pub(crate) fn into_places(self) -> Vec<usize> {
        self.places
    }
}

/// The numbers of a batch of plain charges only: the charges of each bucket, one bucket after the
/// other. `None` if any operation is not plain, or if several limits charge one bucket.
fn plain<'o>(
    operations: impl Iterator<Item = &'o NamedOperation>,
    places: &[usize],
) -> Option<Vec<u8>> {
    let charges = operations.zip(places).map(|(operation, place)| {
        let Operation::Charges(charges) = operation.operation() else { return None };
        let [one] = charges.as_slice() else { return None };
        is_plain(&one.as_charge()).then_some((place, one))
    });
    let mut charges: SmallVec<[_; 1]> = charges.collect::<Option<_>>()?;
    // A stable sort: the charges of one bucket stay in order. Those of different buckets do not
    // depend on each other.
    charges.sort_by_key(|(place, _)| **place);
    // No time matters to plain charges.
    let mut writer = RequestWriter::new(Timestamp::UNIX_EPOCH);
    // Where the run of buckets that are charged alike begins, and its length.
    let (mut alike, mut count) = (0, 0_usize);
    for of_bucket in charges.chunk_by(|(one, _), (other, _)| one == other) {
        let [(_, first), others @ ..] = of_bucket else { continue };
        let at = writer.len();
        writer.push(1);
        let mut numbers = |one: &'o OwnedCharge| {
            let one = one.as_charge();
            writer.limit_numbers(one.bucket(), one.id())
        };
        let limit = numbers(first);
        if others.iter().any(|(_, other)| numbers(other) != limit) {
            return None;
        }
        limit.into_iter().for_each(|number| writer.push(number));
        writer.push(length(of_bucket.len()));
        of_bucket.iter().for_each(|(_, charge)| writer.push(charge.as_charge().units().max(0)));
        if count > 0 && writer.repeats(alike, at) {
            count = count.saturating_add(1);
            writer.truncate(at);
            writer.overwrite(alike, length(count));
        } else {
            (alike, count) = (at, 1);
        }
    }
    Some(argument(kind::PLAIN, &writer))
}

/// The kind of a batch and its numbers, as doubles.
fn argument(kind: i64, writer: &RequestWriter<'_>) -> Vec<u8> {
    let mut all = Vec::with_capacity(writer.len().saturating_add(8).saturating_mul(8));
    push(&mut all, double::from_i64(kind));
    writer.numbers().for_each(|number| push(&mut all, double::from_i64(number)));
    all
}

fn push(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// What kind of batch it is.
mod kind {
    /// Any other batch.
    pub(super) const GENERAL: i64 = 0;
    /// The time of initialization counts: absent buckets were empty then.
    pub(super) const INITIALIZED: i64 = 1;
    /// All operations are plain charges.
    pub(super) const PLAIN: i64 = 2;
}
