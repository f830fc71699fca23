//! Any reply of the script, compared with the operations on a map of what the slow parser finds in
//! it.

use std::collections::HashMap;

use ::redis::Value;
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_testing::fuzz::bytes::draws_each;

use super::stored::{RawValue, quotas, values};
use crate::script::{ScriptReply, ScriptRequest};
use tollgate::HOUR;
use tollgate::Quota;
use tollgate::algebra::{Bucket, State, Terms};
use tollgate::backend::{
    Adjustment, Applied, BackendError, BucketId, BucketRecord, BucketStore, Charge, Key,
};
use tollgate::clock::Timestamp;
use tollgate_conformance::dice::Dice;
use tollgate_conformance::history::START;
use tollgate_kit::key_name::{HashTag, KeyNames};
use tollgate_kit::operation::{NamedOperation, Operation};

/// The buckets of a reply by their names in Redis, as the slow parser finds them.
struct NamedRecords {
    now: Timestamp,
    names: KeyNames,
    found: HashMap<Vec<u8>, ParsedValue>,
}

#[derive(Clone, Copy, Debug)]
enum ParsedValue {
    Nothing,
    Record(BucketRecord),
    Foreign,
}

impl NamedRecords {
    fn name(&self, id: BucketId<'_>) -> Vec<u8> {
        self.names.name(id).as_ref().to_vec()
    }

    /// The answer to an operation. An error has the name of the first foreign key.
    fn play(&mut self, operation: &NamedOperation) -> Result<Applied, Vec<u8>> {
        if !matches!(operation.operation(), Operation::Resets(_)) {
            for name in operation.names().iter().map(|name| name.as_ref().to_vec()) {
                if matches!(self.found[&name], ParsedValue::Foreign) {
                    return Err(name);
                }
            }
        }
        Ok(operation.operation().decide(self))
    }
}

impl BucketStore for NamedRecords {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        match self.found[&self.name(id)] {
            ParsedValue::Record(record) => Some(record),
            ParsedValue::Nothing | ParsedValue::Foreign => None,
        }
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        self.found.insert(self.name(id), ParsedValue::Record(record));
    }

    fn forget(&mut self, id: BucketId<'_>) {
        self.found.insert(self.name(id), ParsedValue::Nothing);
    }
}

/// The reply of the script about keys with these values.
fn sent(now: i64, initialized_at: Value, values: &[Option<Vec<u8>>]) -> Value {
    let mut stored = Vec::new();
    let mut all = vec![Value::Int(now), initialized_at, Value::Nil];
    for (place, value) in (1..).zip(values) {
        match value {
            Some(value) if value.len() == 48 => stored.extend(value),
            Some(_) => all.push(Value::Int(-place)),
            None => all.push(Value::Int(place)),
        }
    }
    all[2] = Value::BulkString(stored);
    Value::Array(all)
}

/// Replies of the script, of which any part may be something else.
fn answers(quota: &Quota, keys: usize, init_counts: bool) -> impl Strategy<Value = Value> + use<> {
    let value = prop_oneof![
        6 => values(quota, BucketId::new("one", &Key::GLOBAL)).prop_map(|raw| Some(raw.0)),
        2 => Just(None),
    ];
    let number = || prop_oneof![3 => Just(START.as_micros()), 1 => any::<i64>()];
    let init = number().prop_map(move |at| if init_counts { Value::Int(at) } else { Value::Nil });
    let list = prop_oneof![8 => vec(value.clone(), keys..=keys), 1 => vec(value, 0..6)];
    let odd = prop_oneof![
        (-6..7_i64).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        vec(any::<u8>(), 0..200).prop_map(Value::BulkString),
        any::<String>().prop_map(Value::SimpleString),
        Just(Value::Nil),
    ];
    let is_odd = prop_oneof![3 => Just(false), 1 => Just(true)];
    (number(), init, list, is_odd, 0..8_usize, odd).prop_map(
        |(now, init, list, is_odd, place, odd)| match sent(now, init, &list) {
            Value::Array(mut parts) if is_odd => {
                match parts.get_mut(place) {
                    Some(part) => *part = odd,
                    None if place == 7 => return odd,
                    None => parts.push(odd),
                }
                Value::Array(parts)
            }
            answer => answer,
        },
    )
}

/// One operation of each kind on four buckets, for a quota.
fn operations(quota: &Quota, names: &KeyNames, units: i64) -> Vec<NamedOperation> {
    let bucket = Bucket::of_shard(quota).unwrap();
    let keys = ["alice", "bob", "carol"].map(Key::from);
    let [a, b, c] = [0, 1, 2].map(|nth| BucketId::new("one", &keys[nth]));
    let charges = |all: &[Charge<'_>]| NamedOperation::charges("redis", all, names).unwrap();
    let adjustments =
        |all: &[Adjustment<'_>]| NamedOperation::new(Operation::adjustments(all), names);
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
        NamedOperation::new(Operation::resets(&[a, b]), names),
    ]
}

/// The number of their buckets. One charge names a second shard.
const BUCKETS: usize = 4;

/// What a reply about so many keys must give: the time, and what each key holds.
fn parts(answer: &Value, keys: usize, init_counts: bool) -> Option<(i64, Vec<ParsedValue>)> {
    let Value::Array(parts) = answer else { return None };
    let [Value::Int(now), init, Value::BulkString(stored), others @ ..] = &parts[..] else {
        return None;
    };
    if !matches!((init, init_counts), (Value::Nil, false) | (Value::Int(_), true)) {
        return None;
    }
    let (mut stored, mut found) = (stored.as_slice(), Vec::new());
    let mut others: Vec<i64> =
        others.iter().map(|it| if let Value::Int(it) = it { *it } else { 0 }).collect();
    others.reverse();
    for place in 1..=i64::try_from(keys).unwrap() {
        let other = others.pop_if(|other| other.checked_abs() == Some(place));
        found.push(match other {
            Some(1..) => ParsedValue::Nothing,
            Some(_) => ParsedValue::Foreign,
            None => {
                let (value, rest) = stored.split_at_checked(48)?;
                stored = rest;
                RawValue(value.to_vec()).record().map_or(ParsedValue::Foreign, ParsedValue::Record)
            }
        });
    }
    (stored.is_empty() && others.is_empty()).then_some((*now, found))
}

#[test]
fn the_inputs_have_replies_with_buckets_with_foreign_values_and_invalid_ones() {
    let quota = Quota::fixed_window(10, HOUR);
    draws_each(&answers(&quota, BUCKETS, false), 3, |answer| {
        let (_, found) = parts(&answer, BUCKETS, false)?;
        Some(found.iter().any(|found| matches!(found, ParsedValue::Foreign)))
    });
}

/// Checks the error of an operation on a foreign key. Waiting does not help, so it is no outage. It
/// names the limit and not the key, which may be the name of a person.
#[track_caller]
fn is_undecidable(error: &BackendError, name: &[u8]) {
    let told = error.cause().unwrap().to_string();
    let name = str::from_utf8(name).unwrap();
    assert!(told.starts_with("a key of limit `one` holds a value that is not a bucket"), "{told}");
    assert!(!told.contains(name), "{told}");
    assert!(!error.is_outage() && !error.is_timeout(), "{error}");
}

fn inputs() -> impl Strategy<Value = (Quota, Value, bool)> {
    (quotas(), any::<bool>()).prop_flat_map(|(quota, init_counts)| {
        let answers = answers(&quota, BUCKETS, init_counts);
        (Just(quota), answers, Just(init_counts))
    })
}

proptest! {
    /// Each operation has the answer of a store with these buckets, or an error about a foreign
    /// key. A value that is not a reply is rejected.
    #[test]
    fn any_reply_of_the_script_is_read_as_by_the_slow_parser_or_rejected(
        (quota, answer, init_counts) in inputs(),
        units in prop_oneof![0..1_000_000_i64, 0..=1_i64 << 53],
        seed in any::<u64>(),
    ) {
        let names = KeyNames::new("t".to_owned(), HashTag::Bucket, None).unwrap();
        let mut operations = operations(&quota, &names, units);
        // In any order, because each operation starts from what the one before left.
        let mut dice = Dice(seed);
        operations.sort_by_cached_key(|_| dice.below(1 << 32));
        let request = ScriptRequest::new(operations.iter(), init_counts, START);
        let keys: Vec<Vec<u8>> = request.keys().iter().map(|name| name.as_ref().to_vec()).collect();
        prop_assert_eq!(keys.len(), BUCKETS);
        let places = request.into_places();
        let wanted = parts(&answer, BUCKETS, init_counts).map(|(now, found)| NamedRecords {
            now: Timestamp::from_micros(now),
            found: keys.into_iter().zip(found).collect(),
            names,
        });
        prop_assert_eq!(ScriptReply::is_answer(&answer, BUCKETS, init_counts), wanted.is_some());
        let reply = ScriptReply::read(&answer, BUCKETS, init_counts);
        prop_assert_eq!(reply.is_some(), wanted.is_some());
        let (Some(reply), Some(mut wanted)) = (reply, wanted) else { return Ok(()) };
        let mut replay = reply.into_replay(Vec::new());
        let mut rest = places.as_slice();
        for operation in &operations {
            let (own, others) = rest.split_at(operation.names().len());
            rest = others;
            match (replay.answer(operation, own), wanted.play(operation)) {
                // A store of records does not know the time of initialization.
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
