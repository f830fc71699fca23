//! What is under the name of a bucket, read by the script and by this process: both read the same.

use std::sync::{LazyLock, Mutex, PoisonError};

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::servers::{Client, Reply};
use super::{START, Server, on};
use crate::HOUR;
use crate::algebra::{Bucket, Terms};
use crate::backend::redis::script::outside_input::{all_quotas, quotas, stored};
use crate::backend::redis::script::record;
use crate::backend::{
    Applied, Backend, BucketId, BucketRecord, BucketStore, Charge, Key, Redis, apply_all,
};
use crate::clock::{ManualClock, Timestamp};
use crate::quota::Quota;

/// A store of one bucket.
struct Lone(Option<BucketRecord>);

impl BucketStore for Lone {
    fn now(&mut self) -> Timestamp {
        START
    }

    fn read(&mut self, _: BucketId<'_>) -> Option<BucketRecord> {
        self.0
    }

    fn write(&mut self, _: BucketId<'_>, record: BucketRecord) {
        self.0 = Some(record);
    }

    fn forget(&mut self, _: BucketId<'_>) {
        self.0 = None;
    }
}

/// A server, a store on it, and a connection beside it: one for all cases, which use the same keys.
struct Stage {
    runtime: Runtime,
    redis: Redis,
    client: Client,
    _server: Server,
}

static STAGE: LazyLock<Mutex<Stage>> = LazyLock::new(|| {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = Server::start();
    let redis = on(&server, &ManualClock::new(START));
    let redis = runtime.block_on(redis.connect()).unwrap();
    Mutex::new(Stage { runtime, redis, client: server.client(), _server: server })
});

/// How a charge is asked, which decides by which part of the script.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Look,
    Reserving,
}

fn charge<'a>(way: Way, id: BucketId<'a>, bucket: &'a Bucket, units: i64) -> Charge<'a> {
    match way {
        Way::Plain => Charge::take(id, bucket, units),
        Way::Look => Charge::look(id, bucket, units),
        Way::Reserving => {
            Charge::take(id, bucket, units).terms(Terms::reserving(bucket.floor()).within(HOUR))
        }
    }
}

/// Charges that travel together, each on a bucket of its own that holds this.
fn play(quota: &Quota, cases: &[(Vec<u8>, Way, i64)]) {
    // After a failure the next case begins anew.
    let mut stage = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let Stage { runtime, redis, client, .. } = &mut *stage;
    let bucket = Bucket::of_shard(quota).unwrap();
    let keys: Vec<_> = (0..u64::try_from(cases.len()).unwrap()).map(Key::from).collect();
    for (nth, (raw, ..)) in cases.iter().enumerate() {
        let name = format!("tollgate:in:n={nth}");
        client.send(&[b"SET", name.as_bytes(), raw]).unwrap();
    }
    cases.iter().for_each(|_| client.receive().unwrap().ok());
    let answers: Vec<Result<Applied, _>> = runtime.block_on(async {
        let ask = |(key, (_, way, units)): (_, &(Vec<u8>, Way, i64))| {
            redis.apply(&[charge(*way, BucketId::new("in", key), &bucket, *units)])
        };
        // All are on their way before the first is awaited.
        let asked: Vec<_> = keys.iter().zip(cases).map(ask).collect();
        let mut answers = Vec::new();
        for one in asked {
            answers.push(one.wait().await);
        }
        answers
    });
    for nth in 0..cases.len() {
        client.send(&[b"GET", format!("tollgate:in:n={nth}").as_bytes()]).unwrap();
    }
    // All are received before anything is asserted, or the next case would receive them.
    let left: Vec<Reply> = cases.iter().map(|_| client.receive().unwrap()).collect();
    for (((key, (raw, way, units)), answer), left) in keys.iter().zip(cases).zip(answers).zip(left)
    {
        let left = left.bytes();
        let shown = || format!("{quota}, {way:?} {units}: {raw:?}");
        let Some(before) = record(raw) else {
            assert_eq!(left, raw, "no bucket is overwritten: {}", shown());
            // An empty string is seen by what stores something, and by nothing else.
            assert!(answer.is_err() || raw.is_empty(), "{}", shown());
            continue;
        };
        let mut here = Lone(Some(before));
        let charge = charge(*way, BucketId::new("in", key), &bucket, *units);
        let applied = apply_all(&mut here, &[charge]);
        assert_eq!(answer.unwrap(), applied, "{}", shown());
        assert_eq!(record(left), here.0, "{}", shown());
    }
}

fn cases(quota: Quota) -> impl Strategy<Value = Vec<(Vec<u8>, Way, i64)>> {
    let way = prop_oneof![3 => Just(Way::Plain), 1 => Just(Way::Look), 1 => Just(Way::Reserving)];
    let token = Bucket::of_shard(&quota).unwrap().units(1).unwrap();
    let units = prop_oneof![
        (0..12_i64).prop_map(move |tokens| (tokens * token).min(1 << 53)),
        0..1_000_i64
    ];
    vec((stored(quota), way, units), 100)
}

/// Values that were found by hand, or that were once read differently: six numbers in each line, or the names of
/// doubles that JSON lacks.
#[test]
fn the_script_reads_what_is_known_to_be_nasty_as_this_process_does() {
    let number = |value: &serde_json::Value| match value.as_str() {
        Some(name) => name.parse().unwrap(),
        None => value.as_f64().unwrap(),
    };
    let lines = include_str!("../../../../tests/data/redis_values.jsonl").lines();
    let raw: Vec<Vec<u8>> = lines
        .map(|line| serde_json::from_str::<Vec<serde_json::Value>>(line).unwrap())
        .map(|numbers| numbers.iter().flat_map(|value| f64::to_le_bytes(number(value))).collect())
        .collect();
    assert!(raw.len() > 60);
    for quota in all_quotas() {
        let token = Bucket::of_shard(&quota).unwrap().units(1).unwrap();
        for way in [Way::Plain, Way::Look, Way::Reserving] {
            for units in [0, 1, token] {
                let cases: Vec<_> = raw.iter().map(|raw| (raw.clone(), way, units)).collect();
                play(&quota, &cases);
            }
        }
    }
}

/// A hundred values in each case, so a hundredth of the cases.
fn hundreds() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: (usual.cases / 100).max(64), ..usual }
}

proptest! {
    #![proptest_config(hundreds())]

    #[test]
    fn the_script_reads_what_this_process_reads(
        (quota, cases) in quotas().prop_flat_map(|quota| (Just(quota), cases(quota))),
    ) {
        play(&quota, &cases);
    }
}
