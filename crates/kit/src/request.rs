//! A request to a server: several operations as one list of whole numbers.

use std::collections::HashMap;
use std::iter;

use super::operation::{MAX, NamedOperation, Operation};
use tollgate::algebra::{Bucket, State, Units};
use tollgate::backend::{Adjustment, BucketId, Change, Charge, OwnedAdjustment, OwnedCharge};
use tollgate::clock::Timestamp;
use tollgate::kit::micros;
use tollgate::kit::{Calendar, Kind};

/// Writes the numbers of the limits and of the operations.
///
/// A store knows no calendars. It is told the start of the window around the time at which its clock
/// probably is, and counts in windows from there; what it is told holds between two instants, and
/// outside of them it does nothing.
#[derive(Debug)]
pub struct RequestWriter<'o> {
    limits: Vec<&'o Bucket>,
    /// The time at which the clock of the store probably is.
    around: Timestamp,
    /// What is told of calendars holds from the first of these instants until before the other.
    holds: [Timestamp; 2],
    /// The places of the limits, used once there are more than [`FEW`]: comparing each with all
    /// others would take too long.
    known: HashMap<[u64; 5], usize>,
    numbers: Vec<i64>,
}

impl<'o> RequestWriter<'o> {
    /// A writer for a store whose clock is probably at this time.
    pub fn new(around: Timestamp) -> Self {
        let holds = [i64::MIN, i64::MAX].map(Timestamp::from_micros);
        let (limits, known, numbers) = (Vec::new(), HashMap::new(), Vec::with_capacity(16));
        Self { limits, around, holds, known, numbers }
    }

    /// All operations, each with the places of its buckets, behind their number.
    pub fn operations(
        &mut self,
        operations: impl Iterator<Item = &'o NamedOperation>,
        places: &[usize],
    ) {
        let begin = self.numbers.len();
        // The place of the number of operations, which is not known yet: the iterator is read once.
        self.push(0);
        let (mut rest, mut count) = (places, 0_i64);
        for operation in operations {
            let (own, others) =
                rest.split_at_checked(operation.names().len()).unwrap_or((rest, &[]));
            rest = others;
            self.operation(operation.operation(), own);
            count = count.saturating_add(1);
        }
        self.overwrite(begin, count);
    }

    /// The number of limits, and the gain, token, capacity, step and initial of each; then all
    /// numbers that were written.
    ///
    /// A limit with a calendar has a step below zero, and stands twice: its second place has the
    /// start of the window, the mean length of windows, and the end of the window. If there is one, a
    /// last limit has the instants between which all that holds, and -2 for its initial, which no
    /// bucket has.
    pub fn numbers(&self) -> impl Iterator<Item = i64> {
        let mut before: Option<&Bucket> = None;
        let limits = self.limits.iter().flat_map(move |&limit| {
            let [gain, token, step] = [limit.gain(), limit.token(), limit.step()].map(whole);
            let (capacity, initial) = (limit.capacity(), limit.initial());
            let Some(calendar) = limit.calendar() else {
                return [gain, token, capacity, step, initial];
            };
            if before.take().is_some() {
                let start = calendar.start(self.around);
                let [start, end] = [start, calendar.after(start, 1)].map(Timestamp::as_micros);
                return [start, calendar.mean(), end, 0, 0];
            }
            before = Some(limit);
            [gain, token, capacity, step.saturating_neg(), initial]
        });
        let [from, until] = self.holds.map(|at| at.as_micros().clamp(-MAX, MAX));
        let holds = self.limits.iter().any(|limit| limit.calendar().is_some());
        let holds = holds.then_some([from, until, 0, 0, -2]);
        let count = length(self.limits.len()).saturating_add(i64::from(holds.is_some()));
        let limits = limits.chain(holds.into_iter().flatten());
        iter::once(count).chain(limits).chain(self.numbers.iter().copied())
    }

    /// How many numbers were written for operations.
    pub const fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Removes what was written from here on.
    pub fn truncate(&mut self, len: usize) {
        self.numbers.truncate(len);
    }

    fn operation(&mut self, operation: &'o Operation, places: &[usize]) {
        if let Operation::Charges(charges) = operation
            && let [one] = charges.as_slice()
            && let one = one.as_charge()
            && is_plain(&one)
        {
            self.push(code::TAKE);
            self.bucket(places.first(), one.bucket(), one.id());
            return self.push(one.units().max(0));
        }
        match operation {
            Operation::Charges(charges) => {
                self.push(code::CHARGES);
                self.push(length(charges.len()));
                let mut places = places.iter();
                let charges = charges.iter().map(OwnedCharge::as_charge);
                charges.for_each(|charge| self.charge(&charge, &mut places));
            }
            Operation::Adjustments(adjustments) => {
                self.push(code::ADJUSTMENTS);
                self.push(length(adjustments.len()));
                let adjustments = adjustments.iter().map(OwnedAdjustment::as_adjustment);
                adjustments.zip(places).for_each(|(one, place)| self.adjustment(&one, place));
            }
            Operation::Resets(_) => {
                self.push(code::RESETS);
                self.push(length(places.len()));
                places.iter().for_each(|place| self.push(key(Some(place))));
            }
        }
    }

    fn charge<'p>(&mut self, charge: &Charge<'o>, places: &mut impl Iterator<Item = &'p usize>) {
        let (bucket, terms) = (charge.bucket(), charge.get_terms());
        self.push(key(places.next()));
        self.push(if charge.get_second_shard().is_some() { key(places.next()) } else { 0 });
        self.limit(bucket, charge.id());
        // A cost below zero takes nothing, as in the algebra.
        self.push(charge.units().max(0));
        self.push(terms.floor());
        let max_wait = terms.max_wait();
        let max_wait = match bucket.calendar() {
            Some(calendar) if max_wait < u64::MAX => self.windows_within(calendar, max_wait),
            _ => max_wait,
        };
        self.push(whole(max_wait));
        self.push(i64::from(charge.takes()));
    }

    fn adjustment(&mut self, adjustment: &Adjustment<'o>, place: &usize) {
        let bucket = adjustment.bucket();
        self.bucket(Some(place), bucket, adjustment.id());
        match adjustment.change() {
            Change::Refund { units } => self.refund(units, None, None),
            Change::RefundSince { units, since } => self.refund(units, None, Some(since)),
            Change::Undo { units, left } => self.refund(units, Some(left), None),
            Change::Block { time } => {
                let time = micros(time);
                let calendar = bucket.calendar();
                let windows = calendar.map_or(0, |calendar| self.windows_of_block(calendar, time));
                self.push(1);
                self.push(whole(time));
                [0, whole(windows), 0].into_iter().for_each(|number| self.push(number));
                self.state(None);
            }
        }
    }

    /// How many windows begin within so many microseconds.
    fn windows_within(&mut self, calendar: Calendar, micros: u64) -> u64 {
        let windows = calendar.count(self.around, self.around.plus_micros(micros));
        self.holds_until_window(calendar, windows, micros);
        windows
    }

    /// How many windows a block of so many microseconds touches.
    fn windows_of_block(&mut self, calendar: Calendar, micros: u64) -> u64 {
        let Some(ticks) = micros.checked_sub(1) else { return 0 };
        let last = self.around.plus_micros(ticks);
        // No later than the last instant that can be counted.
        let end = Timestamp::from_micros(MAX.saturating_sub(1));
        let windows = calendar.count(self.around, last.min(end));
        if last < end {
            self.holds_until_window(calendar, windows, ticks);
        }
        windows.saturating_add(1)
    }

    /// Notes that what was written holds while so many windows, and no more, begin within so many
    /// microseconds.
    fn holds_until_window(&mut self, calendar: Calendar, windows: u64, micros: u64) {
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        let start = calendar.start(self.around);
        let [first, next] = [windows, windows.saturating_add(1)].map(|windows| {
            let begins = calendar.after(start, windows).as_micros();
            Timestamp::from_micros(begins.saturating_sub(micros))
        });
        self.hold(first, next);
    }

    fn hold(&mut self, from: Timestamp, until: Timestamp) {
        let [first, last] = self.holds;
        self.holds = [first.max(from), last.min(until)];
    }

    fn refund(&mut self, units: Units, left: Option<State>, since: Option<State>) {
        self.push(0);
        // So many units empty or fill any bucket.
        self.push(units.clamp(-MAX, MAX));
        self.state(left);
        self.state(since);
    }

    /// Writes a bucket and its limit.
    fn bucket(&mut self, place: Option<&usize>, bucket: &'o Bucket, id: BucketId<'_>) {
        self.push(key(place));
        self.limit(bucket, id);
    }

    /// Writes a limit and its phase.
    fn limit(&mut self, bucket: &'o Bucket, id: BucketId<'_>) {
        let limit = self.limit_numbers(bucket, id);
        limit.into_iter().for_each(|number| self.push(number));
    }

    /// The number of a limit, and its phase.
    pub fn limit_numbers(&mut self, bucket: &'o Bucket, id: BucketId<'_>) -> [i64; 2] {
        let next = self.limits.len();
        let place = if next < FEW {
            let same = |known: &&Bucket| numbers(known) == numbers(bucket);
            self.limits.iter().position(same).unwrap_or(next)
        } else {
            if self.known.is_empty() {
                // In reverse, so that the first place of a limit with a calendar counts.
                let places = self.limits.iter().enumerate().rev();
                self.known = places.map(|(place, limit)| (numbers(limit), place)).collect();
            }
            *self.known.entry(numbers(bucket)).or_insert(next)
        };
        if place == next {
            self.limits.push(bucket);
            if let Some(calendar) = bucket.calendar() {
                self.limits.push(bucket);
                let start = calendar.start(self.around);
                self.hold(start, calendar.after(start, 1));
            }
        }
        [key(Some(&place)), phase(bucket, id)]
    }

    /// Whether the numbers from `here` on equal those from `there` on, apart from the first one.
    pub fn repeats(&self, there: usize, here: usize) -> bool {
        let behind = |at: usize| at.saturating_add(1);
        match self.numbers.split_at_checked(here) {
            Some((before, _)) => before.get(behind(there)..) == self.numbers.get(behind(here)..),
            None => false,
        }
    }

    /// Replaces the number at a position.
    pub fn overwrite(&mut self, at: usize, number: i64) {
        if let Some(place) = self.numbers.get_mut(at) {
            *place = number;
        }
    }

    fn state(&mut self, state: Option<State>) {
        self.push(i64::from(state.is_some()));
        self.push(state.map_or(0, |state| state.value));
        self.push(state.map_or(0, |state| state.ts.as_micros()));
    }

    pub fn push(&mut self, number: i64) {
        self.numbers.push(number);
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

/// Whether a charge takes from one bucket what it holds, without debt, in steps of one length that
/// begin at known instants.
pub fn is_plain(charge: &Charge<'_>) -> bool {
    let (bucket, terms) = (charge.bucket(), charge.get_terms());
    charge.takes()
        && charge.get_second_shard().is_none()
        && terms.floor() == 0
        && terms.max_wait() == 0
        && bucket.calendar().is_none()
        && !bucket.is_from_first_use()
}

/// The first start of a window after the epoch; -2^53 if windows begin with the first use.
pub fn phase(bucket: &Bucket, id: BucketId<'_>) -> i64 {
    match bucket.kind() {
        Kind::TokenBucket => 0,
        Kind::FixedWindow if bucket.calendar().is_some() => 0,
        Kind::FixedWindow if bucket.is_from_first_use() => -MAX,
        Kind::FixedWindow => {
            let start = bucket.start().unwrap_or_else(|| id.phase(bucket));
            let step = i64::try_from(bucket.step()).unwrap_or(i64::MAX);
            start.as_micros().checked_rem_euclid(step).unwrap_or(0)
        }
    }
}

/// The index of a bucket or a limit in Lua and in SQL, where lists begin at 1.
fn key(place: Option<&usize>) -> i64 {
    place.map_or(0, |place| length(place.saturating_add(1)))
}

pub fn length(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// A number that no quota reaches counts as the largest.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
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
