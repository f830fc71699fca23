//! The request to the script: several operations as one list of numbers.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::double;
use crate::algebra::{Bucket, State, Units};
use crate::backend::Change;
use crate::backend::adjustment::micros;
use crate::backend::redis::hashed::PrehashedMap;
use crate::backend::redis::key_name::KeyName;
use crate::backend::redis::operation::{NamedAdjustment, NamedBucketId, NamedCharge, Operation};
use crate::quota::Kind;

/// One call of the script: the buckets of several operations, each once, and the numbers.
pub(in crate::backend::redis) struct ScriptRequest<'o> {
    keys: Vec<&'o KeyName>,
    /// For each bucket that an operation names, in order, its place among the keys.
    places: Vec<usize>,
    argument: Vec<u8>,
}

impl<'o> ScriptRequest<'o> {
    /// Writes the request. `init_counts` says whether absent buckets count as empty at the
    /// initialization.
    pub(in crate::backend::redis) fn new(
        operations: impl Iterator<Item = &'o Operation> + Clone,
        init_counts: bool,
    ) -> Self {
        let (keys, places) = number(operations.clone());
        let plain = if init_counts { None } else { plain(operations.clone(), &places) };
        let argument = plain.unwrap_or_else(|| {
            let mut writer = RequestWriter::default();
            let (mut rest, mut count) = (places.as_slice(), 0_i64);
            for operation in operations {
                let (own, others) =
                    rest.split_at_checked(operation.buckets()).unwrap_or((rest, &[]));
                rest = others;
                writer.operation(operation, own);
                count = count.saturating_add(1);
            }
            let kind = if init_counts { kind::INITIALIZED } else { kind::GENERAL };
            writer.argument(kind, Some(count))
        });
        Self { keys, places, argument }
    }

    /// The names of its buckets.
    pub(in crate::backend::redis) fn keys(&self) -> &[&'o KeyName] {
        &self.keys
    }

    /// The numbers, as `batch.lua` reads them.
    pub(in crate::backend::redis) fn argument(&self) -> &[u8] {
        &self.argument
    }

    /// Appends the time that the script sees, for tests.
    #[cfg(test)]
    pub(in crate::backend::redis) fn with_time(mut self, now: crate::clock::Timestamp) -> Self {
        push(&mut self.argument, double::from_i64(now.as_micros()));
        self
    }

    /// For each bucket that an operation names, in order, its place among the keys.
    pub(in crate::backend::redis) fn into_places(self) -> Vec<usize> {
        self.places
    }
}

/// Numbers the buckets. One that is named several times gets one number.
fn number<'o>(operations: impl Iterator<Item = &'o Operation>) -> (Vec<&'o KeyName>, Vec<usize>) {
    let least = operations.size_hint().0;
    let (mut keys, mut places) = (Vec::with_capacity(least), Vec::with_capacity(least));
    let mut known: Option<PrehashedMap<&KeyName, usize>> = None;
    for operation in operations {
        for name in operation.names() {
            let next = keys.len();
            // A single bucket needs no table.
            let place = match &mut known {
                Some(known) => *known.entry(name).or_insert(next),
                None if keys.first() == Some(&name) => 0,
                None if keys.is_empty() => 0,
                None => {
                    let first = keys.first().map(|first| (*first, 0));
                    known = Some(first.into_iter().chain([(name, next)]).collect());
                    next
                }
            };
            if place == next {
                keys.push(name);
            }
            places.push(place);
        }
    }
    (keys, places)
}

/// The numbers of a batch of plain charges only: the charges of each bucket, one bucket after the
/// other. `None` if any operation is not plain, or if several limits charge one bucket.
fn plain<'o>(operations: impl Iterator<Item = &'o Operation>, places: &[usize]) -> Option<Vec<u8>> {
    let charges = operations.zip(places).map(|(operation, place)| match operation {
        Operation::Charges(charges) => match charges.as_slice() {
            [one] if is_plain(one) => Some((place, one)),
            _ => None,
        },
        Operation::Adjustments(_) | Operation::Resets(_) => None,
    });
    let mut charges: SmallVec<[_; 1]> = charges.collect::<Option<_>>()?;
    // A stable sort: the charges of one bucket stay in order. Those of different buckets do not
    // depend on each other.
    charges.sort_by_key(|(place, _)| **place);
    let mut writer = RequestWriter { numbers: Vec::with_capacity(64), ..RequestWriter::default() };
    // Where the run of buckets that are charged alike begins, and its length.
    let (mut alike, mut count) = (0, 0_usize);
    for of_bucket in charges.chunk_by(|(one, _), (other, _)| one == other) {
        let [(_, first), others @ ..] = of_bucket else { continue };
        let at = writer.numbers.len();
        writer.push_f64(1.0);
        let limit = writer.limit_numbers(&first.bucket, &first.id);
        for (_, other) in others {
            if writer.limit_numbers(&other.bucket, &other.id) != limit {
                return None;
            }
        }
        limit.into_iter().for_each(|number| writer.push_f64(number));
        writer.push_f64(length(of_bucket.len()));
        of_bucket.iter().for_each(|(_, charge)| writer.push_i64(charge.units.max(0)));
        if count > 0 && writer.repeats(alike, at) {
            count = count.saturating_add(1);
            writer.numbers.truncate(at);
            writer.overwrite(alike, length(count));
        } else {
            (alike, count) = (at, 1);
        }
    }
    Some(writer.argument(kind::PLAIN, None))
}

/// Writes the numbers of the limits and of the operations.
#[derive(Default)]
struct RequestWriter<'o> {
    limits: Vec<&'o Bucket>,
    /// The places of the limits, used once there are more than [`FEW`]: comparing each with all
    /// others would take too long.
    known: HashMap<[u64; 5], usize>,
    numbers: Vec<u8>,
}

impl<'o> RequestWriter<'o> {
    /// All numbers, including the number of operations if the script has to know it.
    fn argument(self, kind: i64, count: Option<i64>) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.numbers.len().saturating_add(64));
        push(&mut all, double::from_i64(kind));
        push(&mut all, length(self.limits.len()));
        for limit in self.limits {
            push(&mut all, double::from_u64(limit.gain()));
            push(&mut all, double::from_u64(limit.token()));
            push(&mut all, double::from_i64(limit.capacity()));
            push(&mut all, double::from_u64(limit.step()));
            push(&mut all, double::from_i64(limit.initial()));
        }
        count.into_iter().for_each(|count| push(&mut all, double::from_i64(count)));
        all.extend_from_slice(&self.numbers);
        all
    }

    fn operation(&mut self, operation: &'o Operation, places: &[usize]) {
        if let Operation::Charges(charges) = operation
            && let [one] = charges.as_slice()
            && is_plain(one)
        {
            self.push_i64(code::TAKE);
            self.bucket(places.first(), &one.bucket, &one.id);
            return self.push_i64(one.units.max(0));
        }
        match operation {
            Operation::Charges(charges) => {
                self.push_i64(code::CHARGES);
                self.push_f64(length(charges.len()));
                let mut places = places.iter();
                charges.iter().for_each(|charge| self.charge(charge, &mut places));
            }
            Operation::Adjustments(adjustments) => {
                self.push_i64(code::ADJUSTMENTS);
                self.push_f64(length(adjustments.len()));
                adjustments.iter().zip(places).for_each(|(one, place)| self.adjustment(one, place));
            }
            Operation::Resets(names) => {
                self.push_i64(code::RESETS);
                self.push_f64(length(names.len()));
                places.iter().for_each(|place| self.push_f64(key(Some(place))));
            }
        }
    }

    fn charge<'p>(
        &mut self,
        charge: &'o NamedCharge,
        places: &mut impl Iterator<Item = &'p usize>,
    ) {
        let bucket = &charge.bucket;
        self.push_f64(key(places.next()));
        self.push_f64(if charge.other.is_some() { key(places.next()) } else { 0.0 });
        self.limit(bucket, &charge.id);
        self.push_i64(charge.units.max(0));
        self.push_i64(charge.terms.floor());
        self.push_f64(double::from_u64(charge.terms.max_wait()));
        self.push_i64(i64::from(charge.takes));
    }

    fn adjustment(&mut self, owned: &'o NamedAdjustment, place: &usize) {
        self.bucket(Some(place), &owned.bucket, &owned.id);
        match owned.change {
            Change::Refund { units } => self.refund(units, None, None),
            Change::RefundSince { units, since } => self.refund(units, None, Some(since)),
            Change::Undo { units, left } => self.refund(units, Some(left), None),
            Change::Block { time } => {
                self.push_i64(1);
                self.push_f64(double::from_u64(micros(time)));
                self.state(None);
                self.state(None);
            }
        }
    }

    fn refund(&mut self, units: Units, left: Option<State>, since: Option<State>) {
        self.push_i64(0);
        // So many units empty or fill any bucket.
        self.push_i64(units.clamp(-double::MAX, double::MAX));
        self.state(left);
        self.state(since);
    }

    /// Writes a bucket and its limit.
    fn bucket(&mut self, place: Option<&usize>, bucket: &'o Bucket, id: &NamedBucketId) {
        self.push_f64(key(place));
        self.limit(bucket, id);
    }

    /// Writes a limit and its phase.
    fn limit(&mut self, bucket: &'o Bucket, id: &NamedBucketId) {
        let limit = self.limit_numbers(bucket, id);
        limit.into_iter().for_each(|number| self.push_f64(number));
    }

    /// The number of a limit, and its phase.
    fn limit_numbers(&mut self, bucket: &'o Bucket, id: &NamedBucketId) -> [f64; 2] {
        let next = self.limits.len();
        let place = if next < FEW {
            let same = |known: &&Bucket| numbers(known) == numbers(bucket);
            self.limits.iter().position(same).unwrap_or(next)
        } else {
            if self.known.is_empty() {
                self.known = self.limits.iter().map(|limit| numbers(limit)).zip(0..).collect();
            }
            *self.known.entry(numbers(bucket)).or_insert(next)
        };
        if place == next {
            self.limits.push(bucket);
        }
        [key(Some(&place)), double::from_i64(phase(bucket, id))]
    }

    /// Whether the numbers from `here` on equal those from `there` on, apart from the first one.
    fn repeats(&self, there: usize, here: usize) -> bool {
        let behind = |at: usize| at.saturating_add(size_of::<f64>());
        match self.numbers.split_at_checked(here) {
            Some((before, _)) => before.get(behind(there)..) == self.numbers.get(behind(here)..),
            None => false,
        }
    }

    /// Replaces the number at a position.
    fn overwrite(&mut self, at: usize, number: f64) {
        if let Some(place) = self.numbers.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = number.to_le_bytes();
        }
    }

    fn state(&mut self, state: Option<State>) {
        self.push_i64(i64::from(state.is_some()));
        self.push_i64(state.map_or(0, |state| state.value));
        self.push_i64(state.map_or(0, |state| state.ts.as_micros()));
    }

    fn push_i64(&mut self, number: i64) {
        self.push_f64(double::from_i64(number));
    }

    fn push_f64(&mut self, number: f64) {
        push(&mut self.numbers, number);
    }
}

/// Up to this many limits are searched one by one.
const FEW: usize = 8;

/// The numbers that identify a limit in a request.
const fn numbers(bucket: &Bucket) -> [u64; 5] {
    let (capacity, initial) = (bucket.capacity(), bucket.initial());
    let [capacity, initial] = [capacity.cast_unsigned(), initial.cast_unsigned()];
    [bucket.step(), bucket.gain(), bucket.token(), capacity, initial]
}

/// Whether the script's fast path can decide a charge.
fn is_plain(charge: &NamedCharge) -> bool {
    charge.takes
        && charge.other.is_none()
        && charge.terms.floor() == 0
        && charge.terms.max_wait() == 0
}

/// The first start of a window after the epoch, which a double holds exactly.
pub(in crate::backend::redis) fn phase(bucket: &Bucket, id: &NamedBucketId) -> i64 {
    match bucket.kind() {
        Kind::TokenBucket => 0,
        Kind::FixedWindow => {
            let start = bucket.start().unwrap_or_else(|| id.get().phase(bucket));
            let step = i64::try_from(bucket.step()).unwrap_or(i64::MAX);
            start.as_micros().checked_rem_euclid(step).unwrap_or(0)
        }
    }
}

/// The index of a bucket or a limit in Lua, where lists begin at 1.
fn key(place: Option<&usize>) -> f64 {
    place.map_or(0.0, |place| length(place.saturating_add(1)))
}

fn length(length: usize) -> f64 {
    u64::try_from(length).map_or(f64::INFINITY, double::from_u64)
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

/// The codes of the operations.
mod code {
    /// One charge, on one bucket, without debt.
    pub(super) const TAKE: i64 = 1;
    /// Charges, all or nothing.
    pub(super) const CHARGES: i64 = 2;
    /// Adjustments, all or nothing.
    pub(super) const ADJUSTMENTS: i64 = 3;
    /// Resets.
    pub(super) const RESETS: i64 = 4;
}
