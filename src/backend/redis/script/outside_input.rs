//! Answers of a server that are no answers of the script, and values that are no buckets.

use std::time::Duration;

use ::redis::Value;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::reply::record;
use super::{ScriptReply, ScriptRequest};
use crate::algebra::{Bucket, State, Terms};
use crate::backend::redis::key_name::{HashTag, KeyNames};
use crate::backend::redis::operation::{Operation, OwnedAdjustment, OwnedCharge};
use crate::backend::tests::{Dice, START};
use crate::backend::{Adjustment, BucketId, Charge, Key};
use crate::quota::Quota;
use crate::{HOUR, MINUTE};

/// Doubles that buckets have, and their neighbours.
pub(in crate::backend::redis) fn double() -> impl Strategy<Value = f64> {
    const MAX: f64 = 9_007_199_254_740_992.0;
    let known = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        60e6,
        360e6,
        3.6e9,
        MAX,
        -MAX,
        MAX - 1.0,
        1.0 - MAX,
        MAX + 2.0,
        1e300,
        4_102_444_800_123_456.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
    ];
    prop_oneof![
        3 => select(known.to_vec()),
        2 => (-40..40_i32).prop_map(f64::from),
        1 => any::<i64>().prop_map(|bits| f64::from_bits(bits.cast_unsigned())),
        1 => (0..1_u64 << 53).prop_map(|number| super::double::from_u64(number)),
    ]
}

/// What may be under the name of a bucket: buckets of this quota and others, buckets of which a number
/// was replaced, and anything else.
pub(in crate::backend::redis) fn stored(quota: Quota) -> impl Strategy<Value = Vec<u8>> {
    let bucket = Bucket::of_shard(&quota).unwrap();
    let step = if quota.tokens_at_first() < quota.tokens_at_most() { -1.0 } else { 1.0 };
    let own = [bucket.gain(), bucket.token(), bucket.capacity().cast_unsigned(), bucket.step()]
        .map(super::double::from_u64);
    let numbers = (double(), double(), any::<prop::sample::Index>(), double(), 0..4_u8);
    let like_own = numbers.prop_map(move |(value, ts, place, other, kind)| {
        let mut all = [value, ts, own[0], own[1], own[2], own[3] * step];
        if kind == 0 {
            all[place.index(6)] = other;
        }
        all.iter().flat_map(|number| number.to_le_bytes()).collect()
    });
    prop_oneof![
        4 => like_own,
        2 => vec(double(), 6).prop_map(|all| all.iter().flat_map(|number| number.to_le_bytes()).collect()),
        1 => vec(any::<u8>(), 48),
        1 => vec(any::<u8>(), 0..64),
    ]
}

/// Quotas of both kinds, up to the largest.
pub(in crate::backend::redis) fn all_quotas() -> Vec<Quota> {
    vec![
        Quota::token_bucket(10, HOUR),
        Quota::token_bucket(7, MINUTE).capacity(3),
        Quota::token_bucket(10, HOUR).initial(3).max_reserved(5),
        Quota::fixed_window(10, HOUR),
        Quota::fixed_window(10, HOUR).start(START).max_reserved(20),
        Quota::fixed_window(3, MINUTE).initial(1),
        Quota::token_bucket(1 << 52, Duration::from_micros(1)),
        Quota::token_bucket(1, Duration::from_micros(1 << 53)),
        Quota::fixed_window(2, Duration::from_micros((1 << 53) - 1)),
        Quota::fixed_window(5, Duration::from_micros(3)),
    ]
}

pub(in crate::backend::redis) fn quotas() -> impl Strategy<Value = Quota> {
    select(all_quotas())
}

/// What the script sent, as far as any of it may be something else.
fn answers(keys: usize) -> impl Strategy<Value = Value> {
    let raw = prop_oneof![
        4 => quotas().prop_flat_map(stored).prop_map(Value::BulkString),
        1 => Just(Value::Nil),
        1 => any::<i64>().prop_map(Value::Int),
        1 => any::<String>().prop_map(Value::SimpleString),
    ];
    let now = prop_oneof![3 => Just(START.as_micros()), 1 => any::<i64>()].prop_map(Value::Int);
    let list = prop_oneof![5 => vec(raw.clone(), keys..=keys), 1 => vec(raw, 0..6)];
    prop_oneof![
        8 => (now, list).prop_map(|(now, raw)| Value::Array(vec![now, Value::Array(raw)])),
        1 => vec(any::<i64>().prop_map(Value::Int), 0..4).prop_map(Value::Array),
        1 => Just(Value::Nil),
    ]
}

/// One operation of each kind on three buckets, for a quota.
fn operations(quota: &Quota, names: &KeyNames, units: i64) -> Vec<Operation> {
    let bucket = Bucket::of_shard(quota).unwrap();
    let keys = ["alice", "bob", "carol"].map(Key::from);
    let [a, b, c] = [0, 1, 2].map(|nth| BucketId::new("one", &keys[nth]));
    let charges = |all: &[Charge<'_>]| {
        Operation::Charges(all.iter().map(|one| OwnedCharge::new(one, names).unwrap()).collect())
    };
    let adjustments = |all: &[Adjustment<'_>]| {
        Operation::Adjustments(all.iter().map(|one| OwnedAdjustment::new(one, names)).collect())
    };
    let left = State { value: 0, ts: START };
    let take = |id| Charge::take(id, &bucket, units);
    vec![
        charges(&[take(a)]),
        charges(&[Charge::look(b, &bucket, units)]),
        charges(&[take(a).terms(Terms::reserving(bucket.floor()).within(HOUR)), take(b), take(c)]),
        charges(&[take(c).second_shard(1)]),
        adjustments(&[Adjustment::refund(a, &bucket, units), Adjustment::block(b, &bucket, HOUR)]),
        adjustments(&[Adjustment::undo(c, &bucket, units, left)]),
        adjustments(&[Adjustment::refund_since(c, &bucket, units, left)]),
        Operation::Resets([names.of(a), names.of(b)].into_iter().collect()),
    ]
}

proptest! {
    /// Nothing that a server answers makes a process panic; what is not about all buckets is left.
    #[test]
    fn any_answer_to_the_script_is_read_or_left(
        quota in quotas(),
        answer in answers(4),
        units in prop_oneof![0..1_000_000_i64, Just(1_i64 << 53)],
        init_counts in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let names = KeyNames::new("t".to_owned(), HashTag::Bucket, None).unwrap();
        let mut operations = operations(&quota, &names, units);
        // In any order, as what one leaves is what the next one finds.
        let mut dice = Dice(seed);
        operations.sort_by_cached_key(|_| dice.below(1 << 32));
        let request = ScriptRequest::new(operations.iter(), init_counts);
        let buckets = request.keys().len();
        let places = request.into_places();
        let is_answer = ScriptReply::is_answer(&answer, buckets + usize::from(init_counts));
        let reply = ScriptReply::read(answer, buckets, init_counts);
        prop_assert_eq!(reply.is_some(), is_answer);
        let Some(mut reply) = reply else { return Ok(()) };
        let mut rest = places.as_slice();
        for operation in &operations {
            let (own, others) = rest.split_at(operation.buckets());
            rest = others;
            // Readings, or an error that names the key.
            if let Ok(applied) = reply.replay(operation, own) {
                let is_reset = matches!(operation, Operation::Resets(_));
                prop_assert_eq!(applied.readings().len(), if is_reset { 0 } else { own.len() });
            }
        }
    }

    /// What is read as a bucket says the numbers that it was stored in.
    #[test]
    fn any_value_is_a_bucket_or_none(raw in quotas().prop_flat_map(stored)) {
        let Some(record) = record(&raw) else { return Ok(()) };
        let (numbers, rest) = raw.as_chunks::<8>();
        prop_assert!(rest.is_empty());
        let said = record.to_numbers().map(|number| super::double::from_i64(number));
        prop_assert_eq!(numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect::<Vec<_>>(), said);
        prop_assert!(record.state().value <= record.to_numbers()[4]);
    }
}
