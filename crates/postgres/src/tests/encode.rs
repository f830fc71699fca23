//! Batches as `decide` takes them.

use std::collections::BTreeMap;

use tollgate::algebra::{Bucket, State};
use tollgate::backend::{BucketId, Change};
use tollgate::clock::Timestamp;
use tollgate::kit::micros;
use tollgate::kit::{Kind, MAX_UNITS};
use tollgate_conformance::history::{Step, TestBucket, TestCharge};

/// The arguments of `decide`.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) names: Vec<Vec<u8>>,
    pub(super) numbers: Vec<i64>,
    /// The steps, if they are in the form for all: what is said of calendars depends on the time.
    pub(super) general: Option<Vec<Step>>,
}

/// The name of a bucket in the table.
pub(super) fn name(id: BucketId<'_>) -> Vec<u8> {
    format!("{}:{:?}:{}", id.limit(), id.key(), id.shard_index()).into_bytes()
}

/// The names of the buckets of a step, with repetitions.
fn names(step: &Step) -> Vec<Vec<u8>> {
    match step {
        Step::Apply(charges) => charges
            .iter()
            .flat_map(|one| one.charge().ids().map(name).collect::<Vec<_>>())
            .collect(),
        Step::Adjust(adjustments) => adjustments.iter().map(|one| name(one.target.id())).collect(),
        Step::Reset(targets) => targets.iter().map(|one| name(one.id())).collect(),
    }
}

impl Batch {
    /// A batch of these steps, for the server's clock. Charges of a bucket each have their own form.
    pub(super) fn new(steps: &[Step]) -> Self {
        Self::of_own_charges(steps).unwrap_or_else(|| Self::general(steps))
    }

    /// The form for charges of a bucket each, of limits that begin full.
    pub(super) fn of_own_charges(steps: &[Step]) -> Option<Self> {
        fn own(step: &Step) -> Option<&TestCharge> {
            let Step::Apply(charges) = step else { return None };
            let [one] = charges.as_slice() else { return None };
            let begins_full = one.bucket.initial() == one.bucket.capacity();
            let is_own =
                is_plain(one) && one.bucket.calendar().is_none() && !one.bucket.is_from_first_use();
            (is_own && one.units > 0 && begins_full).then_some(one)
        }
        let charges: Option<BTreeMap<Vec<u8>, &TestCharge>> =
            steps.iter().map(|step| Some((name(own(step)?.target.id()), own(step)?))).collect();
        let charges =
            charges.filter(|charges| charges.len() == steps.len() && !steps.is_empty())?;
        let mut encoder =
            Encoder { numbers: vec![1, 5], ..Encoder::new(BTreeMap::new(), Timestamp::UNIX_EPOCH) };
        for one in charges.values() {
            let [limit, phase] = encoder.limit(&one.bucket, &one.target);
            encoder.push(&[limit, phase, one.units]);
        }
        let mut numbers = vec![i64::try_from(encoder.limits.len()).unwrap()];
        numbers.extend(encoder.limits.iter().flatten());
        numbers.extend(encoder.numbers);
        Some(Self { names: charges.into_keys().collect(), numbers, general: None })
    }

    /// The form for all steps.
    pub(super) fn general(steps: &[Step]) -> Self {
        Self::general_at(steps, Timestamp::UNIX_EPOCH)
    }

    fn general_at(steps: &[Step], now: Timestamp) -> Self {
        let mut places: BTreeMap<Vec<u8>, i64> =
            steps.iter().flat_map(names).map(|name| (name, 0)).collect();
        places.values_mut().zip(1..).for_each(|(place, nth)| *place = nth);
        let mut encoder = Encoder::new(places, now);
        steps.iter().for_each(|step| encoder.step(step));
        if encoder.limits.iter().any(|[.., step, _]| *step < 0) {
            // What is said of calendars holds now and at no other time.
            encoder.limits.push([now.as_micros(), now.as_micros() + 1, 0, 0, -2]);
        }
        let mut numbers = vec![i64::try_from(encoder.limits.len()).unwrap()];
        numbers.extend(encoder.limits.iter().flatten());
        numbers.push(i64::try_from(steps.len()).unwrap());
        numbers.extend(encoder.numbers);
        let names = encoder.places.into_keys().collect();
        Self { names, numbers, general: Some(steps.to_vec()) }
    }

    /// The same batch at a time, for the clock of tests.
    pub(super) fn at(mut self, now: Timestamp) -> Self {
        if let Some(steps) = self.general.take() {
            self = Self::general_at(&steps, now);
        }
        self.numbers.push(now.as_micros());
        self
    }
}

struct Encoder {
    places: BTreeMap<Vec<u8>, i64>,
    limits: Vec<[i64; 5]>,
    numbers: Vec<i64>,
    now: Timestamp,
}

impl Encoder {
    fn new(places: BTreeMap<Vec<u8>, i64>, now: Timestamp) -> Self {
        Self { places, limits: Vec::new(), numbers: Vec::new(), now }
    }

    fn push(&mut self, numbers: &[i64]) {
        self.numbers.extend_from_slice(numbers);
    }

    fn place(&self, id: BucketId<'_>) -> i64 {
        self.places[&name(id)]
    }

    /// The place of a limit, and its phase.
    fn limit(&mut self, bucket: &Bucket, target: &TestBucket) -> [i64; 2] {
        let [gain, token, step] = [bucket.gain(), bucket.token(), bucket.step()].map(signed);
        let sign = if bucket.calendar().is_some() { -1 } else { 1 };
        let numbers = [gain, token, bucket.capacity(), sign * step, bucket.initial()];
        let known = self.limits.iter().position(|limit| *limit == numbers);
        let place = known.unwrap_or_else(|| {
            self.limits.push(numbers);
            if let Some(calendar) = bucket.calendar() {
                let start = calendar.start(self.now);
                let [start, end] = [start, calendar.after(start, 1)].map(Timestamp::as_micros);
                self.limits.push([start, calendar.mean(), end, 0, 0]);
            }
            self.limits.iter().position(|limit| *limit == numbers).unwrap()
        });
        let phase = match bucket.kind() {
            Kind::TokenBucket => 0,
            Kind::FixedWindow if bucket.calendar().is_some() => 0,
            Kind::FixedWindow if bucket.is_from_first_use() => -MAX_UNITS.cast_signed(),
            Kind::FixedWindow => {
                let start = bucket.start().unwrap_or_else(|| target.id().phase(bucket));
                start.as_micros().rem_euclid(step)
            }
        };
        [i64::try_from(place).unwrap() + 1, phase]
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(charges) => match charges.as_slice() {
                [one] if is_plain(one) => {
                    let place = self.place(one.target.id());
                    let [limit, phase] = self.limit(&one.bucket, &one.target);
                    self.push(&[1, place, limit, phase, one.units.max(0)]);
                }
                _ => {
                    self.push(&[2, i64::try_from(charges.len()).unwrap()]);
                    charges.iter().for_each(|one| self.charge(one));
                }
            },
            Step::Adjust(adjustments) => {
                self.push(&[3, i64::try_from(adjustments.len()).unwrap()]);
                for one in adjustments {
                    let place = self.place(one.target.id());
                    let [limit, phase] = self.limit(&one.bucket, &one.target);
                    self.push(&[place, limit, phase]);
                    let mut numbers = change(one.change);
                    if let (Change::Block { time }, Some(calendar)) =
                        (one.change, one.bucket.calendar())
                    {
                        let last = self.now.plus_micros(micros(time).saturating_sub(1));
                        let last = last.min(Timestamp::from_micros(MAX_UNITS.cast_signed() - 1));
                        let windows = signed(calendar.count(self.now, last)) + 1;
                        numbers[3] = if micros(time) == 0 { 0 } else { windows };
                    }
                    self.push(&numbers);
                }
            }
            Step::Reset(targets) => {
                self.push(&[4, i64::try_from(targets.len()).unwrap()]);
                let places: Vec<_> = targets.iter().map(|one| self.place(one.id())).collect();
                self.push(&places);
            }
        }
    }

    fn charge(&mut self, one: &TestCharge) {
        let charge = one.charge();
        let place = self.place(one.target.id());
        let other = charge.get_second_shard();
        let other = other.map_or(0, |shard| self.place(one.target.id().shard(shard)));
        let [limit, phase] = self.limit(&one.bucket, &one.target);
        let max_wait = match (one.bucket.calendar(), one.terms.max_wait()) {
            (Some(calendar), wait) if wait < u64::MAX => {
                calendar.count(self.now, self.now.plus_micros(wait))
            }
            (_, wait) => wait,
        };
        let max_wait = i64::try_from(max_wait).unwrap_or(i64::MAX);
        let (units, takes) = (one.units.max(0), i64::from(one.takes));
        self.push(&[place, other, limit, phase, units, one.terms.floor(), max_wait, takes]);
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

fn is_plain(one: &TestCharge) -> bool {
    let charge = one.charge();
    let at_once = one.terms.floor() == 0 && one.terms.max_wait() == 0;
    one.takes && charge.get_second_shard().is_none() && at_once
}

/// The numbers of a change.
fn change(change: Change) -> [i64; 8] {
    let most = MAX_UNITS.cast_signed();
    let numbers = |units: i64, left: Option<State>, since: Option<State>| {
        let state = |state: Option<State>| match state {
            Some(State { value, ts }) => [1, value, ts.as_micros()],
            None => [0; 3],
        };
        let ([left, a, b], [since, c, d]) = (state(left), state(since));
        [0, units.clamp(-most, most), left, a, b, since, c, d]
    };
    match change {
        Change::Refund { units } => numbers(units, None, None),
        Change::RefundSince { units, since } => numbers(units, None, Some(since)),
        Change::Undo { units, left } => numbers(units, Some(left), None),
        Change::Block { time } => {
            let time = i64::try_from(micros(time)).unwrap_or(i64::MAX);
            [1, time, 0, 0, 0, 0, 0, 0]
        }
    }
}
