//! Any value under the name of a bucket, and the slow parser for it.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tollgate_testing::fuzz::bytes::draws_each;
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::{Seed, seeds};

use tollgate::Quota;
use tollgate::algebra::Bucket;
use tollgate::backend::{BucketId, BucketRecord};
use tollgate::{HOUR, MINUTE};
use tollgate_conformance::history::START;

/// The largest number of a bucket.
const MAX: i64 = 1 << 53;

/// The value of a key.
#[derive(Clone, PartialEq)]
pub(crate) struct RawValue(pub(crate) Vec<u8>);

impl RawValue {
    /// Reads a value from a seed: six doubles, or any bytes.
    fn written(field: &Field) -> Self {
        let numbers: Option<Vec<f64>> =
            field.text().split(' ').map(|number| number.parse().ok()).collect();
        match numbers.as_deref().map(<[f64; 6]>::try_from) {
            Some(Ok(numbers)) => Self::from(numbers),
            _ => Self(field.bytes().to_vec()),
        }
    }

    fn doubles(&self) -> Option<[f64; 6]> {
        let (numbers, rest) = self.0.as_chunks::<8>();
        let numbers: Vec<f64> = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        if rest.is_empty() { numbers.try_into().ok() } else { None }
    }

    /// The numbers, if they are those of a bucket, in integers that cannot overflow.
    pub(crate) fn numbers(&self) -> Option<[i64; 6]> {
        let mut whole = [0; 6];
        for (number, double) in whole.iter_mut().zip(self.doubles()?) {
            // With all digits of the double, so none is lost.
            *number = format!("{double}").parse().ok()?;
        }
        let within = |range: RangeInclusive<i64>, number: i64| range.contains(&number);
        let [value, ts, gain, token, capacity, step] = whole;
        let is_bucket = within(1..=MAX, gain)
            && within(1..=MAX, token)
            && within(1..=MAX, step.checked_abs()?)
            // A quota that starts below its capacity has a capacity above zero.
            && within(i64::from(step < 0)..=MAX, capacity)
            && within(capacity - MAX..=capacity, value)
            && within(1 - step.abs()..=MAX, ts);
        is_bucket.then_some(whole)
    }

    pub(crate) fn record(&self) -> Option<BucketRecord> {
        self.numbers().map(|numbers| BucketRecord::from_numbers(numbers).unwrap())
    }
}

impl From<[f64; 6]> for RawValue {
    fn from(numbers: [f64; 6]) -> Self {
        Self(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }
}

/// In the form of a seed, so that a failure can be copied to the seeds.
impl fmt::Debug for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.doubles() {
            Some(numbers) => f.write_str(&numbers.map(|number| number.to_string()).join(" ")),
            None => Field::from_bytes(&self.0).fmt(f),
        }
    }
}

fn value_seeds() -> Vec<Seed> {
    seeds(include_str!("../../../../../tests/data/fuzz/redis_value.txt"))
}

/// The values of the seeds.
pub(crate) static KNOWN: LazyLock<Vec<RawValue>> =
    LazyLock::new(|| value_seeds().iter().map(|seed| RawValue::written(&seed.field)).collect());

#[test]
fn seeds_of_values_are_read_as_recorded() {
    for Seed { field, wanted } in value_seeds() {
        let value = RawValue::written(&field);
        assert_eq!(RawValue::written(&Field::written(&format!("{value:?}"))).0, value.0);
        assert_eq!(value.numbers().is_some(), wanted == "bucket", "{value:?}");
    }
}

#[expect(clippy::as_conversions, reason = "a double holds each of these whole numbers")]
fn double(number: i64) -> f64 {
    assert!(number.unsigned_abs() <= MAX.unsigned_abs(), "{number}");
    number as f64
}

/// Doubles that buckets have, their neighbours, and those that are not numbers.
fn doubles() -> impl Strategy<Value = f64> {
    let bounds = [0, 1, 60_000_000, 360_000_000, 3_600_000_000, START.as_micros(), MAX];
    let odd = [-0.0, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, f64::MIN_POSITIVE];
    let near = move |bound: i64, by: i64| double((bound + by).clamp(-MAX, MAX));
    prop_oneof![
        3 => (select(bounds.to_vec()), -2..=2_i64).prop_map(move |(bound, by)| near(bound, by)),
        2 => (select(bounds.to_vec()), -2..=2_i64).prop_map(move |(bound, by)| near(-bound, by)),
        2 => (-40..40_i32).prop_map(f64::from),
        2 => (-MAX..=MAX).prop_map(double),
        1 => select(odd.to_vec()),
        1 => any::<u64>().prop_map(f64::from_bits),
    ]
}

/// Times, some of which are the start of a window, where one starts at `start`.
fn times(start: i64, step: i64) -> impl Strategy<Value = f64> {
    let at_start = move |double: f64| {
        let Ok(ts) = format!("{double}").parse::<i64>() else { return double };
        let at = i128::from(ts) - i128::from(ts - start).rem_euclid(step.into());
        let at = i64::try_from(at).unwrap_or(start);
        if at < -MAX { self::double(at + step) } else { self::double(at) }
    };
    let whole =
        || prop_oneof![2 => -MAX..=MAX, 1 => START.as_micros() - 40..START.as_micros() + 40];
    prop_oneof![2 => whole().prop_map(double).prop_map(at_start), 2 => doubles()]
}

/// Values under the name of a bucket: buckets of this quota and others, buckets with one number
/// replaced, seeds with some changes, and anything else.
pub(crate) fn values(quota: &Quota, id: BucketId<'_>) -> impl Strategy<Value = RawValue> + use<> {
    let bucket = Bucket::of_shard(quota).unwrap();
    let start = bucket.absent(START, id.phase(&bucket)).ts.as_micros();
    let step = i64::try_from(bucket.step()).unwrap();
    let sign = if bucket.initial() < bucket.capacity() { -1 } else { 1 };
    let own = [bucket.gain(), bucket.token()].map(|number| i64::try_from(number).unwrap());
    let own = [own[0], own[1], bucket.capacity(), step * sign].map(double);
    let value = (0..=MAX).prop_map({
        let capacity = bucket.capacity();
        move |used| double(capacity - used)
    });
    let value = prop_oneof![1 => value, 1 => doubles()];
    let own = (value, times(start, step), any::<Index>(), doubles(), 0..4_u8).prop_map(
        move |(value, ts, place, other, kind)| {
            let mut numbers = [value, ts, own[0], own[1], own[2], own[3]];
            if kind == 0 {
                numbers[place.index(6)] = other;
            }
            RawValue::from(numbers)
        },
    );
    let changed = (select(&KNOWN[..]), any::<Index>(), doubles(), any::<bool>()).prop_map(
        |(value, place, other, is_changed)| match value.doubles() {
            Some(mut numbers) if is_changed => {
                numbers[place.index(6)] = other;
                RawValue::from(numbers)
            }
            _ => value,
        },
    );
    prop_oneof![
        6 => own,
        3 => changed,
        1 => vec(doubles(), 6).prop_map(|all| RawValue::from(<[f64; 6]>::try_from(all).unwrap())),
        1 => vec(any::<u8>(), 48).prop_map(RawValue),
        1 => vec(any::<u8>(), 0..64).prop_map(RawValue),
    ]
}

/// Quotas of both kinds, up to the largest.
pub(crate) fn all_quotas() -> Vec<Quota> {
    let micros = Duration::from_micros;
    vec![
        Quota::token_bucket(10, HOUR),
        Quota::token_bucket(7, MINUTE).capacity(3),
        Quota::token_bucket(10, HOUR).initial(3).max_reserved(5),
        Quota::fixed_window(10, HOUR),
        Quota::fixed_window(10, HOUR).start(START).max_reserved(20),
        Quota::fixed_window(3, MINUTE).initial(1),
        Quota::token_bucket(1 << 52, micros(1)).max_reserved(0),
        Quota::token_bucket(3, micros(1)).capacity((1 << 53) - 1).max_reserved(1),
        Quota::token_bucket(1, micros(1 << 53)),
        // In steps of 0.1 ms, and of a second.
        Quota::token_bucket(4_999, HOUR * 720),
        Quota::token_bucket(999_999_937, HOUR * 24),
        Quota::fixed_window(2, micros((1 << 53) - 1)),
        Quota::fixed_window(5, micros(3)),
    ]
}

pub(crate) fn quotas() -> impl Strategy<Value = Quota> {
    select(all_quotas())
}

#[test]
fn the_inputs_have_buckets_of_the_quota_and_of_others_and_foreign_values() {
    let key = tollgate::backend::Key::GLOBAL;
    for quota in all_quotas() {
        let bucket = Bucket::of_shard(&quota).unwrap();
        let is_own = |numbers: [i64; 6]| {
            let own = BucketRecord::new(&bucket, bucket.absent(START, START)).to_numbers();
            numbers[2..] == own[2..]
        };
        let inputs = values(&quota, BucketId::new("in", &key));
        draws_each(&inputs, 3, |value| value.numbers().map(is_own));
    }
}
