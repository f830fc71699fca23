//! The reply of the script, beside the operations on a map of what the slow reading finds in it.

use std::collections::HashMap;

use ::redis::Value;
use proptest::collection::vec;
use proptest::prelude::*;

use super::bytes::draws_each;
use super::stored::{RawValue, quotas, values};
use crate::HOUR;
use crate::algebra::{Bucket, State, Terms};
use crate::backend::redis::key_name::{HashTag, KeyNames};
use crate::backend::redis::operation::{Operation, OwnedAdjustment, OwnedCharge};
use crate::backend::redis::script::{ScriptReply, ScriptRequest};
use crate::backend::tests::{Dice, START};
use crate::backend::{
    Adjustment, Applied, BackendError, BucketId, BucketRecord, BucketStore, Charge, Key,
    adjust_all, apply_all,
};
use crate::clock::Timestamp;
use crate::quota::Quota;

/// The buckets of a reply by their names in Redis, as the slow reading finds them.
struct NamedRecords {
    now: Timestamp,
    names: KeyNames,
    found: HashMap<Vec<u8>, Found>,
}

#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    Record(BucketRecord),
    Foreign,
}

impl Found {
    fn of(raw: &Value) -> Self {
        match raw {
            Value::Nil => Self::Nothing,
            Value::BulkString(raw) => {
                RawValue(raw.clone()).record().map_or(Self::Foreign, Self::Record)
            }
            _ => Self::Foreign,
        }
    }
}

impl NamedRecords {
    fn name(&self, id: BucketId<'_>) -> Vec<u8> {
        self.names.of(id).as_ref().to_vec()
    }

    /// What an operation is told; an error is about the first key that holds something else.
    fn play(&mut self, operation: &Operation) -> Result<Applied, Vec<u8>> {
        let names = operation.names().into_iter().map(|name| name.as_ref().to_vec());
        if let Operation::Resets(_) = operation {
            self.found.extend(names.map(|name| (name, Found::Nothing)));
            return Ok(Applied::many(self.now, Vec::new()));
        }
        for name in names {
            if matches!(self.found[&name], Found::Foreign) {
                return Err(name);
            }
        }
        Ok(match operation {
            Operation::Charges(charges) => {
                apply_all(self, &charges.iter().map(OwnedCharge::charge).collect::<Vec<_>>())
            }
            Operation::Adjustments(all) => {
                adjust_all(self, &all.iter().map(OwnedAdjustment::adjustment).collect::<Vec<_>>())
            }
            Operation::Resets(_) => unreachable!("handled above"),
        })
    }
}

impl BucketStore for NamedRecords {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        match self.found[&self.name(id)] {
            Found::Record(record) => Some(record),
            Found::Nothing | Found::Foreign => None,
        }
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        self.found.insert(self.name(id), Found::Record(record));
    }

    fn forget(&mut self, id: BucketId<'_>) {
        self.found.insert(self.name(id), Found::Nothing);
    }
}

/// What the script sent, as far as any of it may be something else.
fn answers(quota: &Quota, keys: usize) -> impl Strategy<Value = Value> + use<> {
    let raw = prop_oneof![
        6 => values(quota, BucketId::new("one", &Key::GLOBAL)).prop_map(|raw| Value::BulkString(raw.0)),
        2 => Just(Value::Nil),
        // A time of initialization, where there is one.
        1 => "[0-9]{1,18}".prop_map(|digits| Value::BulkString(digits.into_bytes())),
        1 => any::<i64>().prop_map(Value::Int),
        1 => any::<String>().prop_map(Value::SimpleString),
    ];
    let now = prop_oneof![3 => Just(START.as_micros()), 1 => any::<i64>()].prop_map(Value::Int);
    let list = prop_oneof![8 => vec(raw.clone(), keys..=keys), 1 => vec(raw, 0..6)];
    prop_oneof![
        12 => (now, list).prop_map(|(now, raw)| Value::Array(vec![now, Value::Array(raw)])),
        1 => vec(any::<i64>().prop_map(Value::Int), 0..4).prop_map(Value::Array),
        1 => Just(Value::Nil),
    ]
}

/// One operation of each kind on four buckets, for a quota.
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

/// The number of their buckets: one of them is charged together with a second shard.
const BUCKETS: usize = 4;

/// What has to come of an answer about so many keys.
fn parts(answer: &Value, keys: usize) -> Option<(i64, &[Value])> {
    match answer {
        Value::Array(parts) => match &parts[..] {
            [Value::Int(now), Value::Array(raw)] if raw.len() == keys => Some((*now, raw)),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn replies_are_drawn_that_are_none_and_with_buckets_and_with_foreign_values() {
    let quota = Quota::fixed_window(10, HOUR);
    draws_each(&answers(&quota, BUCKETS), 3, |answer| {
        let (_, raw) = parts(&answer, BUCKETS)?;
        Some(raw.iter().any(|raw| matches!(Found::of(raw), Found::Foreign)))
    });
}

/// The error of an operation on a key that holds something else: waiting does not help, so it is no
/// outage. It names the limit, and not the key, which may be the name of a person.
#[track_caller]
fn is_undecidable(error: &BackendError, name: &[u8]) {
    use std::error::Error as _;

    let told = error.source().unwrap().to_string();
    let name = str::from_utf8(name).unwrap();
    assert!(told.starts_with("a key of limit `one` holds something that is no bucket"), "{told}");
    assert!(!told.contains(name), "{told}");
    assert!(!error.is_outage() && !error.is_timeout(), "{error}");
}

fn inputs() -> impl Strategy<Value = (Quota, Value, bool)> {
    (quotas(), any::<bool>()).prop_flat_map(|(quota, init_counts)| {
        let answers = answers(&quota, BUCKETS + usize::from(init_counts));
        (Just(quota), answers, Just(init_counts))
    })
}

proptest! {
    /// Each operation is told what it is told by a store with these buckets, or that a key holds
    /// something else, and what is no reply is left.
    #[test]
    fn any_answer_to_the_script_is_read_like_by_the_slow_reading_or_left(
        (quota, answer, init_counts) in inputs(),
        units in prop_oneof![0..1_000_000_i64, 0..=1_i64 << 53],
        seed in any::<u64>(),
    ) {
        let names = KeyNames::new("t".to_owned(), HashTag::Bucket, None).unwrap();
        let mut operations = operations(&quota, &names, units);
        // In any order, as what one leaves is what the next one finds.
        let mut dice = Dice(seed);
        operations.sort_by_cached_key(|_| dice.below(1 << 32));
        let request = ScriptRequest::new(operations.iter(), init_counts);
        let keys: Vec<Vec<u8>> = request.keys().iter().map(|name| name.as_ref().to_vec()).collect();
        prop_assert_eq!(keys.len(), BUCKETS);
        let places = request.into_places();
        let all = BUCKETS + usize::from(init_counts);
        let wanted = parts(&answer, all).map(|(now, raw)| NamedRecords {
            now: Timestamp::from_micros(now),
            found: keys.into_iter().zip(raw.iter().map(Found::of)).collect(),
            names,
        });
        prop_assert_eq!(ScriptReply::is_answer(&answer, all), wanted.is_some());
        let reply = ScriptReply::read(answer, BUCKETS, init_counts);
        prop_assert_eq!(reply.is_some(), wanted.is_some());
        let (Some(mut reply), Some(mut wanted)) = (reply, wanted) else { return Ok(()) };
        let mut rest = places.as_slice();
        for operation in &operations {
            let (own, others) = rest.split_at(operation.buckets());
            rest = others;
            match (reply.replay(operation, own), wanted.play(operation)) {
                // Absent buckets were empty at some time: a store of records does not know that.
                (Ok(applied), Ok(wanted)) if init_counts => {
                    prop_assert_eq!(applied.readings().len(), wanted.readings().len());
                }
                (Ok(applied), Ok(wanted)) => prop_assert_eq!(applied, wanted, "{:?}", operation),
                (Err(error), Err(name)) => is_undecidable(&error, &name),
                (found, wanted) => prop_assert!(false, "{found:?} and not {wanted:?}: {operation:?}"),
            }
        }
    }
}
