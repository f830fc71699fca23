//! The answers are those of the store, and no refusal is one that the store would not give.

use std::sync::Mutex;

use tollgate_testing::cases::{seeds, times};

use super::*;
use crate::algebra::Terms;
use crate::backend::tests::Dice;
use crate::backend::tests::history::{History, Step, expect_ready, play_step};
use crate::backend::{OwnedAdjustment, OwnedBucketId, OwnedCharge};
use crate::clock::Clock;

/// The random calls of the conformance suite, on one clock, with refusals that are remembered for a
/// week: charges in shards, lists, reservations, changed quotas, blocks.
#[test]
fn random_calls_are_answered_as_without_a_cache() {
    let mut saved = 0;
    for seed in seeds(100) {
        let mut history = History::new(seed);
        let clock = ManualClock::new(START);
        let plain = Memory::new().clock(clock.clone());
        let store = Faulty::new(Memory::new().clock(clock.clone()), |_| Fault::None);
        let cache = DenyCache::new(Arc::clone(&store)).clock(clock.clone()).max_age(168 * HOUR);
        let mut asked = 0;
        for nth in 0..400 {
            if history.dice.one_in(2) {
                // Never back: which of the full buckets a store has dropped may then matter.
                clock.set(history.next_time(clock.now(), clock.now()));
            }
            let step = history.step();
            let wanted = expect_ready(play_step(&plain, &step)).unwrap();
            let found = expect_ready(play_step(&cache, &step)).unwrap();
            assert_eq!(wanted, found, "seed {seed}, call {nth}: {step:?}");
            asked += 1;
            if let Step::Apply(charges) = &step
                && let Answer::Ready(Ok(applied)) =
                    plain.apply(&charges.iter().map(|charge| charge.charge()).collect::<Vec<_>>())
            {
                history.seen.extend(applied.readings().iter().map(|reading| reading.state()));
                let Answer::Ready(_) =
                    cache.apply(&charges.iter().map(|charge| charge.charge()).collect::<Vec<_>>())
                else {
                    panic!()
                };
                asked += 1;
                let keep = history.seen.len().saturating_sub(8);
                history.seen.drain(..keep);
            }
        }
        saved += asked - store.calls();
    }
    assert!(saved > 3_000, "only {saved} calls were answered by the cache");
}

/// A store far away, with a clock of its own: each call takes time on the way there and back, and
/// the two clocks differ by years and run at rates that differ by up to 500 millionths.
#[derive(Debug)]
struct Distant {
    inner: Arc<Memory>,
    here: ManualClock,
    there: ManualClock,
    rate: i64,
    dice: Arc<Mutex<Dice>>,
}

impl Distant {
    fn pass(here: &ManualClock, there: &ManualClock, rate: i64, micros: u64) {
        here.advance(Duration::from_micros(micros));
        let micros = i64::try_from(micros).unwrap();
        let micros = micros + micros * rate / 1_000_000;
        there.advance(Duration::from_micros(micros.unsigned_abs()));
    }

    fn pass_some(&self, up_to: u64) {
        let micros = self.dice.lock().unwrap().up_to(up_to);
        Self::pass(&self.here, &self.there, self.rate, micros);
    }

    fn answer<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Memory) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let Self { inner, here, there, rate, dice } = self;
        let (inner, here, there) = (Arc::clone(inner), here.clone(), there.clone());
        let (rate, dice) = (*rate, Arc::clone(dice));
        Answer::pending(async move {
            let [way, back] = [(); 2].map(|()| dice.lock().unwrap().up_to(60_000));
            Self::pass(&here, &there, rate, way);
            let answer = ask(&inner).wait().await;
            Self::pass(&here, &there, rate, back);
            answer
        })
    }
}

impl Backend for Distant {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
        self.answer(move |inner| {
            inner.apply(&owned.iter().map(OwnedCharge::as_charge).collect::<Vec<_>>())
        })
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
        self.answer(move |inner| {
            inner.adjust(&owned.iter().map(OwnedAdjustment::as_adjustment).collect::<Vec<_>>())
        })
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let owned: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
        self.answer(move |inner| {
            inner.reset(&owned.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>())
        })
    }
}

/// At each refusal from memory, the store is asked by a look at that very instant: it refuses too,
/// and the wait is not too short, and too long by a trip at most. Other nodes take as well, and
/// this one settles.
#[test]
fn no_refusal_is_one_that_the_store_would_not_give_at_that_instant() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let quotas = [
        Quota::token_bucket(20, SECOND).max_reserved(10),
        Quota::token_bucket(3, SECOND).capacity(9),
        Quota::fixed_window(10, SECOND * 2),
        Quota::token_bucket(40, SECOND).shards(4),
    ];
    let (mut from_memory, mut longest) = (0_u64, Duration::ZERO);
    for seed in seeds(120) {
        let mut dice = Dice(seed);
        let (here, there) = (ManualClock::new(START), ManualClock::new(START));
        there.advance(Duration::from_micros(dice.up_to(1 << 47)));
        let rate = i64::try_from(dice.below(1_001)).unwrap() - 500;
        let inner = Arc::new(Memory::new().clock(there.clone()));
        let dice = Arc::new(Mutex::new(dice));
        let store = Arc::new(Distant { inner, here: here.clone(), there, rate, dice });
        let cache = DenyCache::new(Arc::clone(&store)).clock(here).max_age(4 * SECOND);
        let bucket = Bucket::of_shard(&quotas[usize::try_from(seed % 4).unwrap()]).unwrap();
        let draw = |sides| store.dice.lock().unwrap().below(sides);
        for _ in 0..400 {
            store.pass_some(1 << 19);
            let key = Key::from(draw(2));
            let id = BucketId::new("limit", &key);
            let units = bucket.units(draw(12)).unwrap();
            let terms = match draw(3) {
                0 => Terms::reserving(bucket.floor()),
                1 => Terms::reserving(bucket.floor()).within(Duration::from_millis(draw(900))),
                _ => Terms::AT_ONCE,
            };
            let take = Charge::take(id, &bucket, units).terms(terms);
            let look = Charge::look(id, &bucket, units).terms(terms);
            let [take, look] = if seed % 4 == 3 {
                [take, look].map(|one| one.second_shard(2))
            } else {
                [take, look]
            };
            match draw(12) {
                0 => drop(
                    runtime
                        .block_on(cache.adjust(&[Adjustment::refund(id, &bucket, units)]).wait()),
                ),
                1 => drop(runtime.block_on(cache.reset(&[id]).wait())),
                // Another node.
                2 => drop(store.inner.apply(&[take])),
                _ => match cache.apply(&[take]) {
                    Answer::Pending(answer) => drop(runtime.block_on(answer)),
                    Answer::Ready(answer) => {
                        let (refused, now) = (answer.unwrap(), store.there.now());
                        let Answer::Ready(Ok(truth)) = store.inner.apply(&[look]) else { panic!() };
                        assert_eq!(refused.verdict(), Verdict::Refused);
                        assert_eq!(truth.verdict(), Verdict::Refused, "seed {seed}");
                        let early = now.since(refused.now());
                        assert!(early <= Duration::from_millis(130), "{early:?}");
                        longest = longest.max(early);
                        from_memory += 1;
                    }
                },
            }
        }
    }
    assert!(from_memory > times(2_000, 1_000), "only {from_memory} refusals came from memory");
    assert!(longest > Duration::from_millis(50), "only {longest:?} passed on the way");
}

#[tokio::test]
async fn a_smaller_cost_that_still_fits_is_asked_of_the_store() {
    let case = Case::new(|_| Fault::None);
    assert!(case.take(7).await);
    assert!(!case.take(4).await);
    let asked = case.store.calls();
    assert!(!case.take(5).await && !case.take(4).await && !case.take(10).await);
    assert_eq!(case.store.calls(), asked);
    assert!(case.take(3).await);
    assert_eq!(case.store.calls(), asked + 1);
    // It took the last ones, so that what was known is forgotten.
    assert!(!case.take(1).await);
    assert_eq!(case.store.calls(), asked + 2);
    assert!(!case.take(1).await);
    assert_eq!(case.store.calls(), asked + 2);
}

#[test]
fn a_window_is_refused_from_memory_wherever_it_begins() {
    let of_key = Quota::fixed_window(2, SECOND);
    for quota in [of_key, of_key.start(START), of_key.from_first_use()] {
        let case = Case::new(|_| Fault::None);
        let bucket = Bucket::new(&quota).unwrap();
        let verdicts = [0; 9].map(|_| {
            let charge = Charge::take(BucketId::new("a", &Key::GLOBAL), &bucket, 1);
            let Answer::Ready(Ok(applied)) = case.cache.apply(&[charge]) else { panic!() };
            applied.verdict()
        });
        assert_eq!(verdicts.map(|one| one == Verdict::Admitted)[..3], [true, true, false]);
        assert_eq!(case.store.calls(), 3, "{quota}");
    }
}

#[test]
fn the_wait_becomes_shorter_and_the_store_is_asked_when_it_is_over() {
    let case = Case::new(|_| Fault::None);
    let bucket = Bucket::new(&Quota::token_bucket(2, SECOND)).unwrap();
    let take = |tokens| {
        let units = bucket.units(tokens).unwrap();
        let charge = Charge::take(BucketId::new("a", &Key::GLOBAL), &bucket, units);
        let Answer::Ready(Ok(applied)) = case.cache.apply(&[charge]) else { panic!() };
        (applied.verdict(), applied.wait())
    };
    assert_eq!(take(2).0, Verdict::Admitted);
    for left in [500, 400, 300, 200, 100] {
        assert_eq!(take(1), (Verdict::Refused, Duration::from_millis(left)));
        case.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(case.store.calls(), 2);
    assert_eq!(take(1).0, Verdict::Admitted);
}

/// A peek is asked to learn how the limit stands.
#[tokio::test]
async fn looks_go_to_the_store() {
    let case = Case::new(|_| Fault::None);
    assert!(case.take(10).await && !case.take(1).await);
    let asked = case.store.calls();
    let look = Charge::look(BucketId::new("limit", &Key::GLOBAL), &case.bucket, 1);
    for nth in 1..=10 {
        case.cache.apply(&[look]).wait().await.unwrap();
        assert_eq!(case.store.calls(), asked + nth);
    }
    assert!(!case.take(1).await);
    assert_eq!(case.store.calls(), asked + 10);
}

/// A list is refused from memory if all of its buckets are known from a refusal.
#[tokio::test]
async fn a_list_is_refused_from_memory_if_all_of_its_buckets_are_known() {
    let case = Case::new(|_| Fault::None);
    let one = case.bucket.units(1).unwrap();
    let charge = |limit| Charge::take(BucketId::new(limit, &Key::GLOBAL), &case.bucket, one);
    let ask = |limits: &[&'static str]| {
        let charges: Vec<_> = limits.iter().map(|limit| charge(limit)).collect();
        let Answer::Ready(Ok(applied)) = case.cache.apply(&charges) else { panic!() };
        let before = case.store.calls();
        (applied.verdict(), applied.readings().len(), before)
    };
    for _ in 0..10 {
        ask(&["limit"]);
    }
    assert_eq!(ask(&["limit"]), (Verdict::Refused, 1, 11));
    assert_eq!(ask(&["limit", "other"]), (Verdict::Refused, 2, 12), "the other is unknown");
    assert_eq!(ask(&["limit", "other"]), (Verdict::Refused, 2, 12));
    assert_eq!(ask(&["other", "limit", "other"]), (Verdict::Refused, 3, 12));
    assert_eq!(ask(&["other"]), (Verdict::Admitted, 1, 13), "it has tokens");
    assert_eq!(ask(&["other", "limit"]), (Verdict::Refused, 2, 14));
}
