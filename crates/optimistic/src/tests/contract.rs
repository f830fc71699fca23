//! The answers are those of the memory store, to the bit.

use std::time::Duration;

use tollgate_testing::cases::seeds;

use super::{CasMap, CasState, Faults, name, on};
use crate::Swap;
use crate::{Optimistic, SwapStore};
use tollgate::algebra::Verdict;
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Memory, Reading};
use tollgate::clock::{Clock, ManualClock};
use tollgate::{HOUR, Key, Limit, Quota, RateLimiter};
use tollgate_conformance::dice::Dice;
use tollgate_conformance::history::START;
use tollgate_conformance::history::{History, Step, expect_ready, play_step};
use tollgate_kit::stored::decode_record;

const STEPS: usize = 180;

fn faults(seed: u64) -> CasState {
    let dice = Dice(seed ^ 0xfa17);
    let faults = Faults { dice, conflict: 3, failure: 9, is_made: false };
    CasState { faults: Some(faults), ..CasState::default() }
}

/// Plays a step until it is answered, and returns what the memory store says to it.
async fn play<const SEVERAL: bool>(
    map: &CasMap<SEVERAL>,
    store: &dyn Backend,
    memory: &Memory,
    step: &Step,
) -> usize {
    let mut failures = 0;
    loop {
        let there = play_step(store, step).wait().await;
        let is_made = map.state.lock().unwrap().faults.as_ref().is_some_and(|it| it.is_made);
        match there {
            Ok(there) => {
                let here = expect_ready(play_step(memory, step)).unwrap();
                assert_eq!(here, there, "{step:?}");
                return failures;
            }
            Err(error) => {
                assert!(error.is_outage(), "{error}");
                failures += 1;
                if is_made {
                    // Its answer was lost, but it was carried out, once.
                    expect_ready(play_step(memory, step)).unwrap();
                    return failures;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn memory_and_a_store_with_conflicts_and_failures_answer_random_calls_alike() {
    let (mut played, mut failed, mut wanted) = (0, 0, 0);
    for seed in seeds(75) {
        let clock = ManualClock::new(START);
        let state = std::sync::Mutex::new(faults(seed));
        let (map, store) = on(CasMap::<true> { state, ..CasMap::default() });
        // Three faults in ten are conflicts, and 64 in a row do not happen.
        let store = store.clock(clock.clone()).deadline(HOUR).tries(64);
        let memory = Memory::new().clock(clock.clone()).keep_full();
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.pass(&clock);
            let step = history.step();
            failed += play(&map, &store, &memory, &step).await;
            played += 1;
            let look = history.draw_charge();
            if look.takes {
                continue;
            }
            let applied = expect_ready(memory.apply(&[look.charge()])).unwrap();
            assert_eq!(store.apply(&[look.charge()]).wait().await.unwrap(), applied);
            history.seen.extend(applied.readings().iter().map(Reading::state));
            let old = history.seen.len().saturating_sub(6);
            history.seen.drain(..old);
        }
        wanted += STEPS;
    }
    assert_eq!(played, wanted);
    assert!(failed * 30 > played, "{failed} failures in {played} steps");
}

/// A store that swaps one value at a time agrees wherever a call names one bucket.
#[tokio::test(start_paused = true)]
async fn memory_and_a_store_of_single_swaps_answer_calls_on_one_bucket_alike() {
    let mut played = 0;
    for seed in seeds(40) {
        let clock = ManualClock::new(START);
        let (map, store) = on(CasMap::<false>::default());
        let store = store.clock(clock.clone()).deadline(HOUR);
        let memory = Memory::new().clock(clock.clone()).keep_full();
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.pass(&clock);
            let step = match history.step() {
                Step::Apply(mut charges) => {
                    charges.truncate(1);
                    charges.iter_mut().for_each(|charge| charge.other = None);
                    Step::Apply(charges)
                }
                Step::Adjust(mut all) => {
                    all.truncate(1);
                    Step::Adjust(all)
                }
                // Bucket by bucket, which shows nowhere if nothing else runs.
                reset @ Step::Reset(_) => reset,
            };
            play(&map, &store, &memory, &step).await;
            played += 1;
        }
    }
    assert!(played >= STEPS);
}

/// Values that expire at the very instant of their hint change no answer, if time goes forward.
#[tokio::test(start_paused = true)]
async fn values_that_expire_when_they_may_change_no_answer() {
    let mut expired = 0;
    for seed in seeds(40) {
        let clock = ManualClock::new(START);
        let (map, store) = on(CasMap::<true> {
            clock: Some(clock.clone()),
            tells_time: true,
            ..CasMap::default()
        });
        // The store has a clock, so that of the process does not count.
        let store = store.clock(ManualClock::new(tollgate::Timestamp::UNIX_EPOCH)).deadline(HOUR);
        let memory = Memory::new().clock(clock.clone());
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            clock.advance(Duration::from_micros(history.dice.up_to(1 << 28)));
            let step = history.step();
            play(&map, &store, &memory, &step).await;
        }
        let now = clock.now();
        let state = map.state.lock().unwrap();
        let hints = state.values.values().filter_map(|(_, full_at)| *full_at);
        expired += hints.filter(|full_at| *full_at <= now).count();
    }
    assert!(expired > 0);
}

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(2, HOUR));

#[tokio::test(start_paused = true)]
async fn refusals_and_looks_load_once_and_write_nothing() {
    let (map, store) = on(CasMap::<true>::default());
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
    assert!(limiter.limit(&LOGIN).key("a").cost(2).await.is_ok());
    assert_eq!(map.counts(), [1, 1]);
    for _ in 0..3 {
        assert!(limiter.limit(&LOGIN).key("a").await.unwrap_err().is_refused());
    }
    assert_eq!(map.counts(), [4, 1]);
    assert_eq!(limiter.peek(&LOGIN).key("a").await.unwrap().remaining(), 0);
    assert_eq!(limiter.peek(&LOGIN).key("b").await.unwrap().remaining(), 2);
    assert_eq!(map.counts(), [6, 1]);
    assert_eq!(map.state.lock().unwrap().values.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reset_deletes_the_value() {
    let (map, store) = on(CasMap::<true>::default());
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
    assert!(limiter.limit(&LOGIN).key("a").await.is_ok());
    limiter.reset(&LOGIN).key("a").await.unwrap();
    assert!(map.state.lock().unwrap().values.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sweep_deletes_a_bucket_that_is_full_and_no_other() {
    let clock = ManualClock::new(START);
    let (map, store) = on(CasMap::<true>::default());
    let store = store.clock(clock.clone());
    let limiter = RateLimiter::new(store.clone());
    let key = Key::from("a");
    let name = name(&LOGIN, &key);
    assert!(limiter.limit(&LOGIN).key("a").await.is_ok());
    let sweep = || store.sweep(&name);
    assert!(!sweep().await.unwrap());
    clock.advance(HOUR / 2);
    assert!(!sweep().await.unwrap(), "it is full, but not for a second");
    clock.advance(Duration::from_secs(1));
    assert!(sweep().await.unwrap());
    assert!(map.state.lock().unwrap().values.is_empty());
    assert!(!sweep().await.unwrap());
}

/// Other programs may use the store as well, or a client may have found a way to write to it.
#[tokio::test(start_paused = true)]
async fn foreign_values_are_an_error_and_stay() {
    let (map, store) = on(CasMap::<true>::default());
    let key = Key::from("a");
    let (id, bucket) = (BucketId::new(LOGIN.name(), &key), LOGIN.bucket());
    let name = name(&LOGIN, &key);
    let long = vec![1; 100_000];
    for foreign in [&b""[..], b"42", &[0; 49], &[1; 49], &[255; 49], &long] {
        let stored = (foreign.to_vec(), None);
        map.state.lock().unwrap().values.insert(name.clone(), stored.clone());
        let take = store.apply(&[Charge::take(id, bucket, 1)]).wait().await.unwrap_err();
        let adjust = store.adjust(&[Adjustment::refund(id, bucket, 1)]).wait().await.unwrap_err();
        let reset = store.reset(&[id]).wait().await.unwrap_err();
        let sweep = store.sweep(&name).await.unwrap_err();
        for error in [take, adjust, reset, sweep] {
            assert!(!error.is_outage(), "{error}");
            let text = error.to_string();
            let begins =
                "map backend can never decide this: the value of `login:s%01a` is not a bucket: ";
            assert!(text.starts_with(begins), "{text}");
        }
        assert_eq!(map.state.lock().unwrap().values.get(&name), Some(&stored));
    }
}

/// Half an hour brings a bucket of two an hour one token.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_brings_its_lead_once() {
    let (_, store) = on(CasMap::<true>::default());
    let (here, there) = (ManualClock::new(START), ManualClock::new(START + HOUR / 2));
    let [behind, ahead] = [&here, &there]
        .map(|clock| RateLimiter::new(store.clone().clock(clock.clone()).deadline(HOUR)));
    let takes = async |limiter: &RateLimiter| limiter.limit(&LOGIN).key("a").await.is_ok();
    let mut admitted = 0;
    for _ in 0..20 {
        for limiter in [&behind, &ahead, &behind] {
            admitted += u32::from(takes(limiter).await);
        }
        here.advance(HOUR / 4);
        there.advance(HOUR / 4);
    }
    // The capacity, what 19 quarters of an hour bring, and the lead.
    assert!((2 + 9..=2 + 9 + 1).contains(&admitted), "{admitted}");
}

/// What a store is told of a value: its key, its bytes, and when it may expire.
#[tokio::test(start_paused = true)]
async fn a_value_is_a_record_with_the_instant_at_which_it_is_full() {
    let (map, store) = on(CasMap::<true>::default());
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
    let begins = Limit::new("begins", Quota::token_bucket(2, HOUR).initial(1));
    assert!(limiter.limit(&LOGIN).key("a").await.is_ok());
    assert!(limiter.limit(&begins).key("a").await.is_ok());
    let state = map.state.lock().unwrap();
    let (value, full_at) = &state.values["login:s%01a"];
    let record = decode_record(value).unwrap();
    assert_eq!(*full_at, Some(START + HOUR / 2));
    assert_eq!(record.droppable_at(), *full_at);
    // An absent bucket of this limit holds less than a full one.
    assert_eq!(state.values["begins:s%01a"].1, None);
}

/// A store that does not implement it says so, and is not tried again.
#[tokio::test(start_paused = true)]
async fn a_store_without_several_swaps_refuses_them_by_itself() {
    #[derive(Debug)]
    struct Empty;
    impl SwapStore for Empty {
        const NAME: &'static str = "empty";
        const SWAPS_SEVERAL: bool = true;
        async fn load(&self, _: &str) -> Result<Option<Vec<u8>>, tollgate::backend::BackendError> {
            Ok(None)
        }
        async fn swap(&self, _: &Swap<'_>) -> Result<bool, tollgate::backend::BackendError> {
            Ok(true)
        }
    }
    let (keys, store) = (["a", "b"].map(Key::from), Optimistic::new(Empty));
    let charges =
        [&keys[0], &keys[1]].map(|key| Charge::take(BucketId::new("x", key), LOGIN.bucket(), 1));
    let error = store.apply(&charges).wait().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "empty backend can never decide this: it cannot swap 2 values in one step"
    );
    assert_eq!(store.apply(&charges[..1]).wait().await.unwrap().verdict(), Verdict::Admitted);
}

/// Values are loaded one after the other, and another call wrote both in between: a look at two buckets
/// saw half of it.
#[tokio::test]
async fn a_look_at_several_buckets_sees_one_instant() {
    let hesitates = CasMap::<true> { hesitates: true, ..CasMap::default() };
    let store = on(hesitates).1.clock(ManualClock::new(START)).deadline(HOUR).tries(u32::MAX);
    let (limit, key) = (Limit::new("pair", Quota::token_bucket(1_000, HOUR)), Key::from("alice"));
    let bucket = limit.bucket();
    let ids = ["pair", "twin"].map(|name| BucketId::new(name, &key));
    let one = bucket.units(1).unwrap();
    let take = ids.map(|id| Charge::take(id, bucket, one));
    let look = ids.map(|id| Charge::look(id, bucket, one));
    let mut seen = std::collections::BTreeSet::new();
    let writes = async {
        for _ in 0..200 {
            assert_eq!(store.apply(&take).wait().await.unwrap().verdict(), Verdict::Admitted);
            tokio::task::yield_now().await;
        }
    };
    let looks = async {
        for _ in 0..200 {
            let applied = store.apply(&look).wait().await.unwrap();
            let [pair, twin] = [0, 1].map(|nth| applied.readings()[nth].state().value);
            assert_eq!(pair, twin);
            seen.insert(pair);
        }
    };
    tokio::join!(writes, looks);
    assert!(seen.len() > 3, "{} values", seen.len());
}
