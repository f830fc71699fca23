//! The locks of the memory store, under many interleavings: at each step, a thread spins, yields or
//! goes on, as a seeded generator says.
//!
//! docs/design/memory-store.md says why every interleaving is safe; these tests check it.
//! The clock stands still, so that sums are exact.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use tollgate::algebra::Verdict;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Change, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tollgate_testing::{START, at_once, is_admitted, limiter, store};

static A: Limit = Limit::new("a", Quota::token_bucket(500, HOUR));
static B: Limit = Limit::new("b", Quota::token_bucket(700, HOUR));

/// Yields, spins for a while, or does nothing.
fn pause(dice: &mut Dice) {
    match dice.below(4) {
        0 => thread::yield_now(),
        1 => (0..dice.below(200)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

/// Runs `work` in this many threads, which start together, and returns what each of them returned.
fn together<T: Send>(threads: u64, seed: u64, work: impl Fn(u64, Dice) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(usize::try_from(threads).unwrap());
    thread::scope(|scope| {
        let run = |thread| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread, Dice(seed * threads + thread))
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn left(limiter: &RateLimiter, limit: &Limit, key: u64) -> u64 {
    at_once(limiter.peek(limit).key(key)).unwrap().remaining()
}

#[test]
fn two_transactions_in_opposite_orders_take_all_or_nothing() {
    for seed in 0..times(40, 12) {
        // There are hundreds of locks, so the two buckets are mostly under different ones.
        let limiter = limiter(&ManualClock::new(START));
        let admitted: u64 = together(4, seed, |thread, mut dice| {
            let (first, second) = if thread % 2 == 0 { (&A, &B) } else { (&B, &A) };
            let mut admitted = 0;
            for _ in 0..200 {
                pause(&mut dice);
                let both = limiter.limit(first).key(1_u64).and(second).key(1_u64);
                match at_once(both) {
                    Ok(permit) => {
                        let [one, other] = [0, 1].map(|nth| permit.snapshots().nth(nth).unwrap());
                        let (a, b) = if thread % 2 == 0 { (one, other) } else { (other, one) };
                        assert_eq!(b.remaining() - a.remaining(), 200, "half of a transaction");
                        admitted += 1;
                    }
                    Err(refused) => {
                        let names = refused.snapshots().iter().map(|one| one.limit().name());
                        assert_eq!(names.collect::<Vec<_>>(), ["a"]);
                    }
                }
            }
            admitted
        })
        .into_iter()
        .sum();
        assert_eq!(admitted, 500, "the whole capacity of the smaller limit");
        assert_eq!([left(&limiter, &A, 1), left(&limiter, &B, 1)], [0, 200]);
    }
}

#[test]
fn a_transaction_keeps_its_buckets_while_others_are_evicted_beside_them() {
    static SMALL: Limit = Limit::new("small", Quota::token_bucket(1_000, HOUR));
    // All buckets under one lock; and two locks, with what a transaction names under one or both.
    for (max_keys, seeds) in [(4, times(40, 12)), (4_096, times(4, 1))] {
        for seed in 0..seeds {
            let memory = Memory::new().max_keys(max_keys);
            let (memory, limiter) = store(memory, &ManualClock::new(START));
            let newcomer = |thread: u64, round: u64| {
                // Closer to full than the two buckets in use, so that newcomers evict one another.
                let newcomer = limiter.limit(&SMALL).key((thread, round));
                assert!(is_admitted(newcomer));
            };
            let first = limiter.limit(&A).key(1_u64).cost(100);
            let first = first.and(&B).key(1_u64).cost(100);
            assert!(is_admitted(first));
            // The store is full: from here on nearly every newcomer evicts another.
            (0..2 * u64::try_from(max_keys).unwrap()).for_each(|round| newcomer(9, round));
            let taken: u64 = together(4, seed, |thread, mut dice| {
                let mut taken = 0;
                for round in 0..100 {
                    pause(&mut dice);
                    if thread < 2 {
                        let both = limiter.limit(&A).key(1_u64).and(&B).key(1_u64);
                        taken += u64::from(is_admitted(both));
                    } else {
                        newcomer(thread, round);
                    }
                    assert!(memory.len() <= max_keys);
                }
                taken
            })
            .into_iter()
            .sum();
            assert_eq!(taken, 200);
            assert_eq!([left(&limiter, &A, 1), left(&limiter, &B, 1)], [200, 400]);
            assert!(memory.len() > max_keys * 9 / 10);
        }
    }
}

/// Two threads settle permits, two reserve and drop. A dropped reservation is undone only if its
/// bucket is untouched since, and the check and the undo are one step.
#[test]
fn a_settlement_and_a_drop_on_one_bucket_add_up() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(10_000, HOUR).max_reserved(150_000));
    let (mut undone, mut spent) = (0, 0);
    for seed in 0..times(40, 12) {
        let store = Arc::new(Undoing {
            memory: Memory::new().clock(ManualClock::new(START)),
            undone: AtomicI64::new(0),
        });
        let limiter = RateLimiter::new(Arc::clone(&store));
        // Ten permits for each thread that settles. Together they take all tokens.
        let permits = Mutex::new(Vec::new());
        for _ in 0..20 {
            let permit = at_once(limiter.limit(&LLM).cost(500)).expect("there is enough");
            permits.lock().unwrap().push(permit);
        }
        let reserved: i64 = together(4, seed, |thread, mut dice| {
            let mut reserved = 0;
            for _ in 0..10 {
                pause(&mut dice);
                if thread < 2 {
                    let permit = permits.lock().unwrap().pop().unwrap();
                    let _ = at_once(permit.settle(200)).unwrap();
                    continue;
                }
                // More than the settlements ever give back, so that each reservation has to wait.
                let call = limiter.limit(&LLM).cost(7_000).reserve();
                let reservation = at_once(call).expect("`max_reserved` allows the debt");
                assert!(!reservation.wait().is_zero(), "there are at most 6,000");
                pause(&mut dice);
                drop(reservation);
                reserved += 7_000;
            }
            reserved
        })
        .into_iter()
        .sum();
        let token = LLM.bucket().units(1).unwrap();
        let given_back = store.undone.load(Ordering::Relaxed);
        let value = at_once(limiter.peek(&LLM)).unwrap().state().value;
        assert_eq!(value, (10_000 - 20 * 200 - reserved) * token + given_back);
        undone += given_back;
        spent += reserved * token - given_back;
    }
    assert!(
        undone > 0 && spent > 0,
        "some were undone and some stayed spent: {undone} and {spent}"
    );
}

/// The memory store, and how many units it gave back for undone reservations.
#[derive(Debug)]
struct Undoing {
    memory: Memory,
    undone: AtomicI64,
}

impl Backend for Undoing {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.memory.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let answer = self.memory.adjust(adjustments);
        let Answer::Ready(Ok(applied)) = &answer else {
            panic!("the memory store answers at once")
        };
        if applied.verdict() == Verdict::Admitted {
            let undone = adjustments.iter().map(|one| match one.change() {
                Change::Undo { units, .. } => units,
                _ => 0,
            });
            self.undone.fetch_add(undone.sum(), Ordering::Relaxed);
        }
        answer
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}
