//! Any value under the name of a bucket, read by the script of a real server and by this process.
//! Both must read the same, and leave a foreign value unchanged.

use std::sync::{LazyLock, Mutex, PoisonError};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Runtime;
use tollgate_testing::redis::{Client, Reply};

use super::fuzz::stored::{KNOWN, RawValue, all_quotas, quotas, values};
use super::{START, Server, on};
use crate::Redis;
use tollgate::HOUR;
use tollgate::Quota;
use tollgate::algebra::{Bucket, Terms};
use tollgate::backend::{
    Adjustment, Applied, Backend, BucketId, BucketRecord, BucketStore, Charge, Key, adjust_all,
    apply_all,
};
use tollgate::clock::{ManualClock, Timestamp};

/// A store of one bucket.
struct OneRecord(Option<BucketRecord>);

impl BucketStore for OneRecord {
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

/// A server, a store on it, and a separate connection. All inputs share them, and use the same
/// keys.
struct Fixture {
    runtime: Runtime,
    redis: Redis,
    client: Client,
    keys: Vec<Key>,
    _server: Server,
}

/// How many values travel together, each under its own key.
const TOGETHER: usize = 100;

static FIXTURE: LazyLock<Mutex<Fixture>> = LazyLock::new(|| {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = Server::start();
    let redis = on(&server, &ManualClock::new(START));
    let redis = runtime.block_on(redis.connect()).unwrap();
    let client = server.client();
    Mutex::new(Fixture { runtime, redis, client, keys: keys(), _server: server })
});

fn keys() -> Vec<Key> {
    (0..u64::try_from(TOGETHER).unwrap()).map(Key::from).collect()
}

fn id(key: &Key) -> BucketId<'_> {
    BucketId::new("in", key)
}

/// How a bucket is used. Different uses run different parts of the script.
#[derive(Clone, Copy, Debug)]
enum Use {
    Take,
    Look,
    Reserve,
    Refund,
    Block,
}

impl Use {
    const ALL: [Self; 5] = [Self::Take, Self::Look, Self::Reserve, Self::Refund, Self::Block];

    /// The charge or the adjustment.
    #[allow(clippy::result_large_err, reason = "it is one of two, and no error")]
    fn of<'a>(
        self,
        id: BucketId<'a>,
        bucket: &'a Bucket,
        units: i64,
    ) -> Result<Charge<'a>, Adjustment<'a>> {
        match self {
            Self::Take => Ok(Charge::take(id, bucket, units)),
            Self::Look => Ok(Charge::look(id, bucket, units)),
            Self::Reserve => {
                let terms = Terms::reserving(bucket.floor()).within(HOUR);
                Ok(Charge::take(id, bucket, units).terms(terms))
            }
            Self::Refund => Err(Adjustment::refund(id, bucket, units)),
            Self::Block => Err(Adjustment::block(id, bucket, HOUR)),
        }
    }
}

#[derive(Clone, Debug)]
struct Input {
    raw: RawValue,
    used: Use,
    units: i64,
}

/// Plays inputs to the server, all at the same time, and to a store of one record each.
fn play(quota: &Quota, inputs: &[Input]) {
    // A failure poisons the lock. That is harmless, because the next inputs overwrite what it left.
    let mut stage = FIXTURE.lock().unwrap_or_else(PoisonError::into_inner);
    let Fixture { runtime, redis, client, keys, .. } = &mut *stage;
    let bucket = Bucket::of_shard(quota).unwrap();
    let names: Vec<_> = (0..inputs.len()).map(|nth| format!("tollgate:in:n={nth}")).collect();
    for (input, name) in inputs.iter().zip(&names) {
        client.send(&[b"SET", name.as_bytes(), &input.raw.0]).unwrap();
    }
    inputs.iter().for_each(|_| client.receive().unwrap().ok());
    let answers: Vec<Result<Applied, _>> = runtime.block_on(async {
        let ask = |(key, input): (_, &Input)| match input.used.of(id(key), &bucket, input.units) {
            Ok(charge) => redis.apply(&[charge]),
            Err(adjustment) => redis.adjust(&[adjustment]),
        };
        // Send all before awaiting the first.
        let asked: Vec<_> = keys.iter().zip(inputs).map(ask).collect();
        let mut answers = Vec::new();
        for one in asked {
            answers.push(one.wait().await);
        }
        answers
    });
    names.iter().for_each(|name| client.send(&[b"GET", name.as_bytes()]).unwrap());
    // Receive all before asserting anything, or the next inputs would receive the rest.
    let left: Vec<Reply> = inputs.iter().map(|_| client.receive().unwrap()).collect();
    for (nth, (answer, left)) in answers.into_iter().zip(left).enumerate() {
        let Input { raw, used, units } = &inputs[nth];
        let left = (left != Reply::Nil).then(|| RawValue(left.bytes().to_vec()));
        let shown = || format!("{quota}, {used:?} {units}: {raw:?}");
        let Some(before) = raw.record() else {
            assert_eq!(left.as_ref(), Some(raw), "what is no bucket is overwritten: {}", shown());
            match answer {
                // Only a call that stores something notices an empty string.
                Ok(_) => assert!(raw.0.is_empty(), "{}", shown()),
                Err(error) => {
                    let told = error.cause().unwrap().to_string();
                    let wanted = "a key of limit `in` holds a value that is not a bucket";
                    assert!(told.starts_with(wanted) && !error.is_outage(), "{told}: {}", shown());
                    assert!(!told.contains(names[nth].as_str()), "{told}");
                }
            }
            continue;
        };
        let mut here = OneRecord(Some(before));
        let applied = match used.of(id(&keys[nth]), &bucket, *units) {
            Ok(charge) => apply_all(&mut here, &[charge]),
            Err(adjustment) => adjust_all(&mut here, &[adjustment]),
        };
        assert_eq!(answer.unwrap(), applied, "{}", shown());
        match left {
            Some(left) => assert_eq!(left.record(), here.0, "{}", shown()),
            // A full bucket need not be kept.
            None => {
                let droppable_at = here.0.unwrap().droppable_at();
                assert!(droppable_at.is_some_and(|at| at <= START), "{}", shown());
            }
        }
    }
}

fn input(quota: &Quota, key: &Key, uses: Vec<Use>) -> impl Strategy<Value = Input> + use<> {
    let token = Bucket::of_shard(quota).unwrap().units(1).unwrap();
    let units = prop_oneof![
        (0..12_i64).prop_map(move |tokens| tokens.saturating_mul(token).min(1 << 53)),
        0..1_000_i64,
        0..=1_i64 << 53,
    ];
    (values(quota, id(key)), proptest::sample::select(uses), units)
        .prop_map(|(raw, used, units)| Input { raw, used, units })
}

/// Inputs of one quota. Half of the lists have plain charges only, which the script decides on its
/// fast path.
fn inputs() -> impl Strategy<Value = (Quota, Vec<Input>)> {
    (quotas(), any::<bool>()).prop_flat_map(|(quota, is_plain)| {
        let uses = if is_plain { vec![Use::Take] } else { Use::ALL.to_vec() };
        let all: Vec<_> = keys().iter().map(|key| input(&quota, key, uses.clone())).collect();
        (Just(quota), all)
    })
}

#[test]
fn the_script_and_this_process_read_the_seeds_of_values_alike() {
    for quota in all_quotas() {
        let token = Bucket::of_shard(&quota).unwrap().units(1).unwrap();
        for used in Use::ALL {
            for units in [0, 1, token] {
                let input = |raw: &RawValue| Input { raw: raw.clone(), used, units };
                let all: Vec<_> = KNOWN.iter().map(input).collect();
                all.chunks(TOGETHER).for_each(|some| play(&quota, some));
            }
        }
    }
}

/// Fewer cases, because each plays many values. Shrinking is limited, because each attempt asks the
/// server.
fn fewer() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let together = u32::try_from(TOGETHER).unwrap();
    let cases = usual.cases.div_ceil(together).max(32);
    ProptestConfig { cases, max_shrink_iters: 200, failure_persistence: None, ..usual }
}

/// Without the macro, which would read the number of cases from the environment once more.
#[test]
fn the_script_and_this_process_read_any_value_alike() {
    let played = TestRunner::new(fewer()).run(&inputs(), |(quota, inputs)| {
        play(&quota, &inputs);
        Ok(())
    });
    played.unwrap_or_else(|found| panic!("{found}"));
}
