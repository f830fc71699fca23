//! Many threads on one store: no token is granted twice, and none is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use tollgate::algebra::{Bucket, Verdict, check_history};
use tollgate::backend::{Backend, BucketId, Charge, Memory, Reading};
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Key, Limit, Quota, SECOND};
use tollgate_testing::cases::times;
use tollgate_testing::{START, at_once, is_admitted, limiter, store};

const THREADS: u64 = 8;
const CAPACITY: u64 = 500;

static BUCKET: Limit = Limit::new("bucket", Quota::token_bucket(CAPACITY, HOUR));
static WINDOW: Limit = Limit::new("window", Quota::fixed_window(CAPACITY, HOUR));

/// Runs `work(thread)` in all threads at the same time, and adds up what they return.
fn hammer(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    let together = Barrier::new(8);
    let total = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (together, total, work) = (&together, &total, &work);
            scope.spawn(move || {
                together.wait();
                total.fetch_add(work(thread), Ordering::Relaxed);
            });
        }
    });
    total.into_inner()
}

/// Each thread asks often enough to use up every bucket on its own.
fn admitted_over(keys: u64, limit: &Limit) -> u64 {
    let limiter = limiter(&ManualClock::new(START));
    hammer(|thread| {
        let mut admitted = 0;
        for round in 0..=CAPACITY {
            for nth in 0..keys {
                // Every thread visits the keys in an order of its own.
                let key = (nth * (2 * thread + 1) + round) % keys;
                admitted += u64::from(is_admitted(limiter.limit(limit).key(key)));
            }
        }
        admitted
    })
}

#[test]
fn one_key_is_admitted_exactly_its_capacity() {
    for _ in 0..20 {
        assert_eq!(admitted_over(1, &BUCKET), CAPACITY);
        assert_eq!(admitted_over(1, &WINDOW), CAPACITY);
    }
}

/// A thousand keys in CI. With 64 as well, all threads are on buckets of one shard again and again.
#[test]
fn many_keys_are_admitted_exactly_their_capacity_each() {
    let keys = times(1_000, 64);
    assert_eq!(admitted_over(keys, &BUCKET), keys * CAPACITY);
}

/// Pairs of buckets, named in either order. A store that locked them in the order of the call would
/// deadlock here, and one that charged them one by one would miss the sum.
#[test]
fn transactions_in_opposite_orders_do_not_deadlock_and_take_all_or_nothing() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let keys: Vec<Key> = (0_u64..16).map(Key::from).collect();
    let bucket = BUCKET.bucket();
    let token = bucket.units(1).unwrap();
    let admitted = hammer(|thread| {
        let mut admitted = 0;
        for round in 0..4_000 {
            let (a, b) = (round % 16, (round * 7 + thread) % 16);
            let charges = [a, b].map(|key| {
                let key = &keys[usize::try_from(key).unwrap()];
                Charge::take(BucketId::new(BUCKET.name(), key), bucket, token)
            });
            let applied = at_once(memory.apply(&charges).wait()).unwrap();
            admitted += 2 * u64::from(applied.verdict() == Verdict::Admitted);
        }
        admitted
    });
    let left: u64 = keys
        .iter()
        .map(|key| at_once(limiter.peek(&BUCKET).key(key.clone())).unwrap().remaining())
        .sum();
    assert_eq!(admitted + left, 16 * CAPACITY);
    assert!(admitted > 15 * CAPACITY, "nearly everything is used up: {admitted}");
}

/// Two-choices charges on pairs of shards in either order, alone and in transactions with another
/// limit. No token is granted twice, and none is left once every pair refuses.
#[test]
fn shards_grant_exactly_what_they_hold_together() {
    let quota = Quota::token_bucket(100, HOUR).shards(10);
    let shard = Bucket::of_shard(&quota).unwrap();
    let one = shard.units(1).unwrap();
    assert_eq!(shard.capacity(), 10 * one);
    let key = Key::from("all-clients");
    let id = |shard| BucketId::new("hot", &key).shard(shard);
    // All shards of the limit under one lock of the store, then under many.
    for (max_keys, seed) in [10, 1_000_000].into_iter().flat_map(|keys| [(keys, 0), (keys, 1)]) {
        let clock = ManualClock::new(START);
        let (memory, _) = store(Memory::new().max_keys(max_keys), &clock);
        let ask = |first, second, alone| {
            let charge = Charge::take(id(first), &shard, one).second_shard(second);
            // A limit that always has tokens. The store locks its bucket as well.
            let open = Charge::take(BucketId::new("open", &key), &shard, 0);
            let charges = [open, charge];
            let asked = if alone { &charges[1..] } else { &charges[..] };
            let applied = at_once(memory.apply(asked).wait()).unwrap();
            u64::from(applied.verdict() == Verdict::Admitted)
        };
        let admitted = hammer(|thread| {
            let mut random = thread * 2 + seed;
            let mut draw = || {
                // Knuth's multiplier; the upper bits are random enough.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                u32::try_from(random >> 33).unwrap()
            };
            let (mut admitted, mut refused) = (0, 0);
            while refused < 500 {
                let first = draw() % 10;
                let second = (first + 1 + draw() % 9) % 10;
                let granted = ask(first, second, draw() % 2 == 0);
                admitted += granted;
                refused = if granted == 0 { refused + 1 } else { 0 };
            }
            admitted
        });
        // Every pair once more: the random pairs may have missed a token.
        let pairs = (0..10).flat_map(|a| (0..10).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let rest: u64 = pairs.map(|(a, b)| (0..20).map(|_| ask(a, b, true)).sum::<u64>()).sum();
        assert_eq!(admitted + rest, 100);
        assert!(admitted > 90, "the random pairs take most tokens: {admitted}");
    }
}

/// Pairs of shards, larger costs, and ordinary charges on the same shards, all at once: the buckets
/// lose exactly what was granted.
#[test]
fn pairs_and_ordinary_charges_take_exactly_what_the_buckets_lose() {
    let shard =
        Bucket::of_shard(&Quota::fixed_window(40_000, HOUR).start(START).shards(8)).unwrap();
    let key = Key::from("all-clients");
    let id = |shard| BucketId::new("hot", &key).shard(shard);
    let (memory, _) = store(Memory::new(), &ManualClock::new(START));
    // With fewer, the buckets would not be used up.
    let rounds = u32::try_from(times(6_000, 2_000)).unwrap();
    let taken = hammer(|thread| {
        let mut taken = 0;
        for round in 0..rounds {
            let thread = u32::try_from(thread).unwrap();
            let (a, b, c) = ((round + thread) % 8, (round * 5 + 1) % 8, (round * 3 + thread) % 8);
            let units = i64::from(round % 40);
            let pair = Charge::take(id(a), &shard, units).second_shard(b);
            let charges = [pair, Charge::take(id(c), &shard, 3), pair.second_shard(c)];
            let asked = &charges[..1 + usize::try_from(round % 3).unwrap()];
            let applied = at_once(memory.apply(asked).wait()).unwrap();
            let paid: i64 = applied.readings().iter().map(Reading::units).sum();
            let asked: i64 = asked.iter().map(Charge::units).sum();
            let refused = applied.verdict() == Verdict::Refused;
            assert_eq!(paid, if refused { 0 } else { asked });
            taken += u64::try_from(paid).unwrap();
        }
        taken
    });
    let left: i64 = (0..8)
        .map(|nth| {
            let look = at_once(memory.apply(&[Charge::look(id(nth), &shard, 0)]).wait()).unwrap();
            look.readings()[0].state().value
        })
        .sum();
    assert_eq!(i64::try_from(taken).unwrap() + left, 8 * shard.capacity());
    assert!(left < shard.capacity(), "nearly everything is used up: {left} are left");
}

/// All threads use one bucket, and add far more keys than the store holds. Sweeping, evicting and
/// growing happen between the decisions of other threads.
#[test]
fn a_bucket_in_use_is_never_lost_to_a_flood() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(1_000), &clock);
    const SHORT: Limit = Limit::new("short", Quota::token_bucket(10, HOUR));
    let admitted = hammer(|thread| {
        let mut admitted = 0;
        for round in 0_u64..5_000 {
            admitted += u64::from(is_admitted(limiter.limit(&BUCKET).key("in use").cost(1)));
            // A new key each time. It has used 1 of 10: a smaller share than the bucket in use,
            // once that has used more than 50 of its 500.
            let made_up = (thread, round);
            assert!(is_admitted(limiter.limit(&SHORT).key((made_up.0, made_up.1))));
        }
        admitted
    });
    assert!(memory.len() <= 1_000);
    // The bucket in use has the smaller share only in its first 50 requests. It can be evicted only
    // then, and gains 50 tokens at most.
    assert!((CAPACITY..=CAPACITY + 50).contains(&admitted), "{admitted}");
}

/// All threads take different costs while the clock advances. Afterwards, the record of what ran is
/// checked window by window.
#[test]
fn what_ran_while_the_clock_advanced_is_within_the_bound() {
    static FAST: Limit = Limit::new("fast", Quota::token_bucket(200, SECOND).capacity(40));
    static STEPS: Limit = Limit::new("steps", Quota::fixed_window(20, SECOND).capacity(40));
    for limit in [&FAST, &STEPS] {
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let ran = Mutex::new(Vec::new());
        let admitted = hammer(|thread| {
            let mut admitted = 0;
            for round in 0..2_000 {
                let cost = (round * 5 + thread) % 7;
                if let Ok(permit) = at_once(limiter.limit(limit).cost(cost)) {
                    ran.lock().unwrap().push((permit.snapshot().at(), cost));
                    admitted += cost;
                }
                clock.advance(Duration::from_micros(700));
            }
            admitted
        });
        let ran = ran.into_inner().unwrap();
        assert_eq!(ran.iter().map(|&(_, cost)| cost).sum::<u64>(), admitted);
        assert_eq!(check_history(limit.quota(), &ran).unwrap(), None);
        // 16,000 advances are 11.2 s, and the threads asked for all tokens of that time.
        let quota = limit.quota();
        let gained = quota.rate() * 112 / 10;
        assert!(admitted >= gained * 95 / 100, "{admitted} of {gained} tokens ran");
    }
}
