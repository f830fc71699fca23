//! Many threads on one store: no token is granted twice, and none is lost.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use support::{START, at_once, limiter, store};
use tollgate::algebra::{Verdict, check_history};
use tollgate::backend::{Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{Decision, HOUR, Key, Limit, Quota, SECOND};

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
                // Every thread goes its own way round the keys.
                let key = (nth * (2 * thread + 1) + round) % keys;
                let decision = at_once(limiter.limit(limit).key(key)).unwrap();
                admitted += u64::from(decision.is_admitted());
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

#[test]
fn a_thousand_keys_are_admitted_exactly_their_capacity_each() {
    assert_eq!(admitted_over(1_000, &BUCKET), 1_000 * CAPACITY);
}

/// Pairs of buckets, named in either order: were they locked in the order of naming, this would
/// hang; were they taken one by one, the sums would differ.
#[test]
fn transactions_in_opposite_orders_neither_hang_nor_tear() {
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
        .map(|key| at_once(limiter.value(&BUCKET).key(key.clone())).unwrap().remaining())
        .sum();
    assert_eq!(admitted + left, 16 * CAPACITY);
    assert!(admitted > 15 * CAPACITY, "nearly everything is used up: {admitted}");
}

/// Threads that come and go over far more keys than there is room for, with the clock running on:
/// sweeping, making room and growing all happen between the decisions of others.
#[test]
fn a_bucket_in_use_is_never_lost_to_a_flood() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(1_000), &clock);
    const SHORT: Limit = Limit::new("short", Quota::token_bucket(10, HOUR));
    let admitted = hammer(|thread| {
        let mut admitted = 0;
        for round in 0_u64..5_000 {
            let decision = at_once(limiter.limit(&BUCKET).key("in use").cost(1)).unwrap();
            admitted += u64::from(decision.is_admitted());
            // Never asked for before, and nearer to full than the one in use after its first
            // seconds: 1 of 10 in an hour against hundreds of 500.
            let made_up = (thread, round);
            assert!(
                at_once(limiter.limit(&SHORT).key((made_up.0, made_up.1))).unwrap().is_admitted()
            );
        }
        admitted
    });
    assert!(memory.len() <= 1_000);
    // A bucket is 7.2 seconds a token; the flood's are full again 6 minutes after their use, so
    // the one in use may be given up only in its first 50 requests.
    assert!((CAPACITY..=CAPACITY + 50).contains(&admitted), "{admitted}");
}

/// The clock runs on while all threads take different costs; the record of what ran is checked
/// afterwards, window by window.
#[test]
fn what_ran_while_time_went_on_is_within_the_bound() {
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
                let decision = at_once(limiter.limit(limit).cost(cost)).unwrap();
                if let Decision::Admitted(permit) = decision {
                    ran.lock().unwrap().push((permit.standing().at(), cost));
                    admitted += cost;
                }
                clock.advance(Duration::from_micros(700));
            }
            admitted
        });
        let ran = ran.into_inner().unwrap();
        assert_eq!(ran.iter().map(|&(_, cost)| cost).sum::<u64>(), admitted);
        assert_eq!(check_history(limit.quota(), &ran).unwrap(), None);
        // 16,000 advances are 11.2 s, whose tokens were all asked for.
        let quota = limit.quota();
        let gained = quota.rate() * 112 / 10;
        assert!(admitted >= gained * 95 / 100, "{admitted} of {gained} tokens ran");
    }
}
