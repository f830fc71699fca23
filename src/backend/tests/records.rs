//! A store that only reads and writes records gives the same answers as the memory store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tollgate_testing::cases::seeds;

use super::START;
use super::history::{History, expect_ready, play_step};
use crate::algebra::{Bucket, State, Terms, Verdict};
use crate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, BucketRecord, BucketStore, Charge, Key, Memory,
    Reading, adjust_all, apply_all, reset_all,
};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::quota::{HOUR, Quota};

type Name = (String, Key, u32);

/// A map of serialised records.
#[derive(Debug)]
struct Map {
    clock: ManualClock,
    records: HashMap<Name, [i64; 6]>,
    /// How often the clock was read, and how often a record was written.
    times: usize,
    writes: usize,
    /// How often a new record has another quota than the one before.
    conversions: usize,
}

fn name(id: BucketId<'_>) -> Name {
    (id.limit().to_owned(), id.key().clone(), id.shard_index())
}

impl BucketStore for Map {
    fn now(&mut self) -> Timestamp {
        self.times += 1;
        self.clock.now()
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        let numbers = self.records.get(&name(id))?;
        Some(BucketRecord::from_numbers(*numbers).expect("a written record can be read"))
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        self.writes += 1;
        let before = self.records.insert(name(id), record.to_numbers());
        self.conversions +=
            usize::from(before.is_some_and(|before| before[2..] != record.to_numbers()[2..]));
    }

    fn forget(&mut self, id: BucketId<'_>) {
        self.records.remove(&name(id));
    }
}

#[derive(Debug)]
struct Store(Mutex<Map>);

impl Store {
    fn new(clock: &ManualClock) -> Self {
        let (clock, records) = (clock.clone(), HashMap::new());
        Self(Mutex::new(Map { clock, records, times: 0, writes: 0, conversions: 0 }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Map) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Backend for Store {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        Answer::Ready(Ok(self.with(|map| apply_all(map, charges))))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        Answer::Ready(Ok(self.with(|map| adjust_all(map, adjustments))))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.with(|map| reset_all(map, ids));
        Answer::Ready(Ok(()))
    }
}

/// Both kinds of limits with numbers of all sizes, windows with and without a start, shards,
/// `initial` below the capacity, quotas that change between calls and within one, adjustments of
/// each kind, resets, and a clock that goes back.
#[test]
fn a_map_of_records_and_the_memory_store_answer_random_calls_alike() {
    let clock = ManualClock::new(START);
    let (mut played, mut converted) = (0, 0);
    let seeds = seeds(75);
    for seed in seeds.clone() {
        clock.set(START);
        // The clock goes back to before some buckets were full, so dropping these would be visible.
        let memory = Memory::new().clock(clock.clone()).keep_full();
        let store = Store::new(&clock);
        let mut history = History::new(seed);
        for nth in 0..180 {
            history.pass(&clock);
            let step = history.step();
            let before = store.with(|map| map.conversions);
            let [here, there] = [&memory as &dyn Backend, &store]
                .map(|store| expect_ready(play_step(store, &step)).unwrap());
            if there.contains("verdict: Refused") {
                converted += store.with(|map| map.conversions) - before;
            }
            assert_eq!(here, there, "seed {seed}, step {nth}, at {:?}: {step:?}", clock.now());
            let look = history.draw_charge();
            let applied = expect_ready(memory.apply(&[look.charge()])).unwrap();
            assert_eq!(
                expect_ready(store.apply(&[look.charge()])).unwrap(),
                applied,
                "seed {seed}"
            );
            // The states that charges have left, for adjustments to name.
            history.seen.extend(applied.readings().iter().map(Reading::state));
            let old = history.seen.len().saturating_sub(6);
            history.seen.drain(..old);
            played += 1;
        }
        let records = store.with(|map| map.records.len());
        assert_eq!(records, memory.len(), "seed {seed}: the same buckets are stored");
    }
    assert_eq!(played, 180 * seeds.end);
    assert!(converted >= usize::try_from(4 * seeds.end).unwrap(), "{converted}");
}

/// Dropping full buckets changes no answer, although the quotas change in every history. The memory
/// store drops them by sweeps and purges, and the map of records at the first instant that is
/// allowed.
#[test]
fn dropping_full_buckets_changes_no_answer_even_if_quotas_change() {
    let clock = ManualClock::new(START);
    let (mut played, mut forgotten, mut swept) = (0, 0, 0);
    let seeds = seeds(75);
    for seed in seeds.clone() {
        clock.set(START);
        let kept = Memory::new().clock(clock.clone()).keep_full();
        let sweeping = Memory::new().clock(clock.clone());
        let store = Store::new(&clock);
        let mut history = History::new(seed);
        for nth in 0..120 {
            let before = clock.now();
            history.pass(&clock);
            // A clock that goes back could show that a bucket was not full yet.
            clock.set(clock.now().max(before));
            if history.dice.one_in(4) {
                swept += usize::from(sweeping.len() < kept.len());
                sweeping.purge();
            }
            forgotten += store.with(|map| {
                let all = map.records.len();
                let (now, chance) = (clock.now(), history.dice.one_in(2));
                map.records.retain(|_, numbers| {
                    let record = BucketRecord::from_numbers(*numbers).unwrap();
                    !chance || record.droppable_at().is_none_or(|at| at > now)
                });
                all - map.records.len()
            });
            let step = history.step();
            let [told, by_sweeping, by_map] = [&kept as &dyn Backend, &sweeping, &store]
                .map(|store| expect_ready(play_step(store, &step)).unwrap());
            let place = format!("seed {seed}, step {nth}, at {:?}: {step:?}", clock.now());
            assert_eq!(told, by_sweeping, "{place}");
            assert_eq!(told, by_map, "{place}");
            let look = history.draw_charge();
            let applied = expect_ready(kept.apply(&[look.charge()])).unwrap();
            assert_eq!(expect_ready(sweeping.apply(&[look.charge()])).unwrap(), applied, "{place}");
            assert_eq!(expect_ready(store.apply(&[look.charge()])).unwrap(), applied, "{place}");
            history.seen.extend(applied.readings().iter().map(Reading::state));
            let old = history.seen.len().saturating_sub(6);
            history.seen.drain(..old);
            played += 1;
        }
    }
    assert_eq!(played, 120 * seeds.end);
    let least = usize::try_from(5 * seeds.end).unwrap();
    assert!(forgotten >= least && swept >= least, "{forgotten} {swept}");
}

fn bucket(quota: Quota) -> Bucket {
    Bucket::new(&quota).unwrap()
}

#[test]
fn a_call_reads_the_clock_once_and_a_refusal_writes_nothing() {
    let store = Store::new(&ManualClock::new(START));
    let (key, ten) = (Key::from("alice"), bucket(Quota::token_bucket(10, HOUR)));
    let token = ten.units(1).unwrap();
    let id = |limit| BucketId::new(limit, &key);
    let take = |limit, tokens| Charge::take(id(limit), &ten, tokens * token);
    for (charges, verdict) in [
        (&[take("a", 11)][..], Verdict::Refused),
        (&[take("a", 11).second_shard(1).terms(Terms::AT_ONCE)], Verdict::Admitted),
        (&[take("a", 21).second_shard(1)], Verdict::Refused),
        (&[take("b", 1), take("c", 11)], Verdict::Refused),
        (&[Charge::look(id("b"), &ten, token), take("c", 0)], Verdict::Admitted),
    ] {
        let before = store.with(|map| (map.times, map.writes));
        let applied = expect_ready(store.apply(charges)).unwrap();
        assert_eq!(applied.verdict(), verdict, "{charges:?}");
        let paid = applied.readings().iter().filter(|reading| reading.units() > 0).count();
        assert_eq!(store.with(|map| (map.times, map.writes)), (before.0 + 1, before.1 + paid));
    }
}

#[test]
fn a_refusal_starts_a_bucket_that_begins_below_its_capacity() {
    let clock = ManualClock::new(START);
    let store = Store::new(&clock);
    let (key, slow) = (Key::from("alice"), bucket(Quota::token_bucket(10, HOUR).initial(3)));
    let five = Charge::take(BucketId::new("slow", &key), &slow, slow.units(5).unwrap());
    assert_eq!(expect_ready(store.apply(&[five])).unwrap().verdict(), Verdict::Refused);
    clock.advance(HOUR / 5);
    assert_eq!(expect_ready(store.apply(&[five])).unwrap().verdict(), Verdict::Admitted);
}

#[test]
fn an_undo_of_several_buckets_is_all_or_nothing() {
    let store = Store::new(&ManualClock::new(START));
    let (key, ten) = (Key::from("alice"), bucket(Quota::token_bucket(10, HOUR)));
    let token = ten.units(1).unwrap();
    let ids = ["a", "b"].map(|limit| BucketId::new(limit, &key));
    let charges = ids.map(|id| Charge::take(id, &ten, token));
    let applied = expect_ready(store.apply(&charges)).unwrap();
    let left = |nth: usize| applied.readings()[nth].state();
    let undo = [0, 1].map(|nth| Adjustment::undo(ids[nth], &ten, token, left(nth)));

    let [_, b] = charges;
    expect_ready(store.apply(&[b])).unwrap();
    let refused = expect_ready(store.adjust(&undo)).unwrap();
    assert_eq!(
        refused.readings().iter().map(Reading::verdict).collect::<Vec<_>>(),
        [Verdict::Refused; 2]
    );
    assert_eq!(refused.readings()[0].state(), left(0), "nothing was made");

    expect_ready(store.adjust(&[Adjustment::refund(ids[1], &ten, token)])).unwrap();
    let made = expect_ready(store.adjust(&undo)).unwrap();
    assert_eq!(made.verdict(), Verdict::Admitted);
    assert!(made.readings().iter().all(|reading| reading.state().value == ten.capacity()));
}

#[test]
fn a_record_tells_when_it_may_be_dropped() {
    let empty = State { value: 0, ts: START };
    let ten = BucketRecord::new(&bucket(Quota::token_bucket(10, HOUR)), empty);
    assert_eq!((ten.full_at(), ten.droppable_at()), (START + HOUR, Some(START + HOUR)));
    let slow = BucketRecord::new(&bucket(Quota::token_bucket(10, HOUR).initial(3)), empty);
    assert_eq!((slow.full_at(), slow.droppable_at()), (START + HOUR, None));
    // The numbers tell whether the bucket starts below its capacity.
    for record in [ten, slow] {
        let read = BucketRecord::from_numbers(record.to_numbers()).unwrap();
        assert_eq!((read, read.full_at()), (record, START + HOUR));
        assert_eq!(read.droppable_at(), record.droppable_at());
    }
    assert_eq!(slow.to_numbers()[5], -ten.to_numbers()[5]);
}

#[test]
fn numbers_that_no_quota_has_are_not_read_as_a_record() {
    const MOST: i64 = 1 << 53;
    let good = [0, START.as_micros(), 1, 360_000_000, 3_600_000_000, 1];
    let with = |place: usize, number: i64| {
        let mut numbers = good;
        numbers[place] = number;
        BucketRecord::from_numbers(numbers)
    };
    assert!(with(0, 0).is_some() && with(0, -MOST).is_some() && with(1, i64::MIN).is_some());
    assert!(with(5, -1).is_some(), "starts below full");
    // No bucket starts below a capacity of zero.
    assert_eq!(BucketRecord::from_numbers([-1, 0, 1, 1, 0, -1]), None);
    for (place, number) in [
        (0, 3_600_000_001),
        (0, -MOST - 1),
        (0, i64::MIN),
        (2, 0),
        (2, -1),
        (3, 0),
        (3, MOST + 1),
        (4, -1),
        (4, MOST + 1),
        (5, 0),
        (5, i64::MAX),
        (5, i64::MIN),
    ] {
        assert_eq!(with(place, number), None, "{number} in place {place}");
    }
}
