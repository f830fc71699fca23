//! The same calls at the same instants have the same answers in memory and in Redis, to the bit.

use std::time::Duration;

use tollgate_testing::cases::seeds;

use super::{START, Server, on};
use crate::Redis;
use tollgate::Quota;
use tollgate::algebra::Bucket;
use tollgate::backend::{Backend, BucketId, Charge, Key, Memory};
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate_conformance::history::{History, expect_ready, play_step};

pub(super) async fn at_rest(redis: &Redis) {
    let key = Key::from("unused");
    redis.reset(&[BucketId::new("a", &key)]).wait().await.unwrap();
}

/// Plays a history to both stores, several steps at a time, and compares the answers.
pub(super) async fn play(redis: &Redis, clock: &ManualClock, seed: u64, steps: usize) -> usize {
    // The clock goes back to before some buckets were full, so dropping these would be visible. No
    // key expires here.
    let memory = Memory::new().clock(clock.clone()).keep_full();
    let mut history = History::new(seed);
    let mut played = 0;
    // Once there is a connection and the server has the script, calls run in the order in which
    // they are sent.
    at_rest(redis).await;
    while played < steps {
        history.pass(clock);
        // The steps travel in one call or in several, and are decided in this order.
        let together = if history.dice.one_in(2) { 1 } else { 1 + history.dice.below(9) };
        let steps: Vec<_> = (0..together).map(|_| history.step()).collect();
        let there: Vec<_> = steps.iter().map(|step| play_step(redis, step)).collect();
        for (step, there) in steps.iter().zip(there) {
            let here = expect_ready(play_step(&memory, step)).unwrap();
            let there = there.wait().await.unwrap();
            assert_eq!(
                here,
                there,
                "seed {seed}, {played} steps before, at {:?}: {step:?}",
                clock.now()
            );
            played += 1;
        }
        // The states of buckets, for later undos.
        let look = history.draw_charge();
        let applied = expect_ready(memory.apply(&[look.charge()])).unwrap();
        expect_ready(memory.adjust(&[])).unwrap();
        let same = redis.apply(&[look.charge()]).wait().await.unwrap();
        assert_eq!(applied, same, "seed {seed}");
        history.seen.extend(applied.readings().iter().map(tollgate::backend::Reading::state));
        let old = history.seen.len().saturating_sub(6);
        history.seen.drain(..old);
    }
    played
}

#[tokio::test]
async fn memory_and_redis_answer_random_calls_alike() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let (mut played, mut wanted) = (0, 0);
    for seed in seeds(75) {
        clock.set(START);
        let redis = on(&server, &clock).prefix(format!("t{seed}")).connect().await.unwrap();
        played += play(&redis, &clock, seed, 180).await;
        wanted += 180;
    }
    assert!(played >= wanted, "{played}");
}

#[tokio::test]
async fn memory_and_redis_answer_charges_with_different_window_starts_alike() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let redis = on(&server, &clock).connect().await.unwrap();
    let memory = Memory::new().clock(clock.clone());
    let [here, there] = [0, 20_000_000].map(|start| {
        let quota = Quota::fixed_window(10, Duration::from_secs(60));
        Bucket::new(&quota.start(Timestamp::from_micros(start))).unwrap()
    });
    for one_by_one in [true, false] {
        let key = Key::from(u64::from(one_by_one));
        let id = BucketId::new("a", &key);
        let charges = [&here, &there, &here, &there].map(|bucket| Charge::take(id, bucket, 1));
        if one_by_one {
            // Two lanes take two each.
            let answers = charges.map(|charge| redis.apply(&[charge]));
            for (charge, answer) in charges.iter().zip(answers) {
                let expected = expect_ready(memory.apply(std::slice::from_ref(charge))).unwrap();
                assert_eq!(answer.wait().await.unwrap(), expected);
            }
        } else {
            let expected = expect_ready(memory.apply(&charges)).unwrap();
            assert_eq!(redis.apply(&charges).wait().await.unwrap(), expected);
        }
        // The stored bucket has the windows of the last charge.
        for _ in 0..8 {
            clock.advance(Duration::from_secs(7));
            let look = [Charge::look(id, &there, 0)];
            let expected = expect_ready(memory.apply(&look)).unwrap();
            assert_eq!(redis.apply(&look).wait().await.unwrap(), expected);
        }
    }
}
