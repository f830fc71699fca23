//! The answers are those of the memory store, to the bit, also after a restart.

use tollgate_testing::cases::seeds;

use super::TestDir;
use crate::{Durability, Embedded};
use tollgate::backend::{Backend, Memory, Reading};
use tollgate::clock::{Clock, ManualClock};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter};
use tollgate_conformance::history::START;
use tollgate_conformance::history::{History, expect_ready, play_step};

const STEPS: usize = 180;

/// Plays a history to both stores, several steps at a time, and compares the answers.
async fn play(seed: u64, durability: Durability) {
    let dir = TestDir::new();
    let clock = ManualClock::new(START);
    let open = || {
        let builder = Embedded::at(dir.file("limits.db")).durability(durability);
        // The clock goes back to before some buckets were full, so removing these would be visible.
        builder.clock(clock.clone()).deadline(HOUR).keep_full().open().unwrap()
    };
    let mut store = open();
    let memory = Memory::new().clock(clock.clone()).keep_full();
    let mut history = History::new(seed);
    let (mut played, mut latest) = (0, START);
    while played < STEPS {
        history.pass(&clock);
        latest = latest.max(clock.now());
        let together = if history.dice.one_in(2) { 1 } else { 1 + history.dice.below(9) };
        let steps: Vec<_> = (0..together).map(|_| history.step()).collect();
        let there: Vec<_> = steps.iter().map(|step| play_step(&store, step)).collect();
        for (step, there) in steps.iter().zip(there) {
            let here = expect_ready(play_step(&memory, step)).unwrap();
            let there = there.wait().await.unwrap();
            assert_eq!(here, there, "seed {seed}, {played} steps before: {step:?}");
            played += 1;
        }
        let look = history.draw_charge();
        if !look.takes {
            let applied = expect_ready(memory.apply(&[look.charge()])).unwrap();
            assert_eq!(store.apply(&[look.charge()]).wait().await.unwrap(), applied);
            history.seen.extend(applied.readings().iter().map(Reading::state));
            let old = history.seen.len().saturating_sub(6);
            history.seen.drain(..old);
        }
        if history.dice.one_in(40) {
            drop(store);
            // A store that is opened counts on from its last commit, if its clock is earlier.
            clock.set(latest);
            store = open();
        }
    }
}

#[tokio::test]
async fn memory_and_a_fast_file_answer_random_calls_alike_also_after_restarts() {
    for seed in seeds(75) {
        play(seed, Durability::Fast).await;
    }
}

/// Each step waits for the disk.
#[tokio::test]
async fn memory_and_a_durable_file_answer_random_calls_alike_also_after_restarts() {
    for seed in seeds(20) {
        play(1_000 + seed, Durability::Durable).await;
    }
}

/// With full buckets removed at each commit, as in production, if time goes forward.
#[tokio::test]
async fn full_buckets_that_are_removed_change_no_answer() {
    for seed in seeds(20) {
        let dir = TestDir::new();
        let clock = ManualClock::new(START);
        let store = Embedded::at(dir.file("limits.db")).clock(clock.clone()).deadline(HOUR);
        let store = store.open().unwrap();
        let memory = Memory::new().clock(clock.clone());
        let mut history = History::new(seed);
        for _ in 0..STEPS / 2 {
            let micros = history.dice.up_to(1 << 32);
            clock.advance(std::time::Duration::from_micros(micros));
            let step = history.step();
            let here = expect_ready(play_step(&memory, &step)).unwrap();
            let there = play_step(&store, &step).wait().await.unwrap();
            assert_eq!(here, there, "seed {seed} at {:?}: {step:?}", clock.now());
        }
    }
}

/// Tasks that ask at once share commits, and get what the limit has.
#[test]
fn sixteen_tasks_are_admitted_exactly_the_capacity() {
    static HOARD: Limit = Limit::new("hoard", Quota::token_bucket(100, DAY));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    for (durability, keys) in
        [(Durability::Durable, 1_u64), (Durability::Fast, 1), (Durability::Fast, 200)]
    {
        let dir = TestDir::new();
        let store = Embedded::at(dir.file("limits.db")).durability(durability).deadline(HOUR);
        let limiter = RateLimiter::new(store.clock(ManualClock::new(START)).open().unwrap());
        let tasks: Vec<_> = (0..16)
            .map(|nth| {
                let limiter = limiter.clone();
                runtime.spawn(async move {
                    let mut admitted = 0_u64;
                    for key in (0..keys).map(|key| (key + nth * keys / 16) % keys) {
                        while limiter.limit(&HOARD).key(key).await.is_ok() {
                            admitted += 1;
                        }
                    }
                    admitted
                })
            })
            .collect();
        let tasks = runtime.block_on(futures_util::future::join_all(tasks));
        let admitted: u64 = tasks.into_iter().map(Result::unwrap).sum();
        assert_eq!(admitted, 100 * keys, "{durability:?}");
    }
}
