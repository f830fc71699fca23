//! The same calls at the same instants have the same answers in memory and in PostgreSQL, to the
//! bit.

use std::num::NonZeroUsize;
use std::time::Duration;

use tollgate_testing::cases::seeds;

use super::Server;
use crate::{Postgres, PostgresBuilder};
use tollgate::backend::{Backend, Memory, Reading};
use tollgate::clock::{Clock, ManualClock};
use tollgate_conformance::history::START;
use tollgate_conformance::history::{History, expect_ready, play_step};

/// A store that uses the time of `clock`, in a schema of its own, on one connection: calls are decided
/// in the order in which they are sent. No test reaches its deadline.
pub(super) fn with_clock(clock: &ManualClock) -> PostgresBuilder {
    let server = Server::shared();
    Postgres::at(server.settings())
        .schema(server.unused_name())
        .connections(NonZeroUsize::MIN)
        .clock(clock.clone())
        .deadline(Duration::from_secs(60))
}

/// Plays a history to both stores, several steps at a time, and compares the answers.
async fn play(postgres: &Postgres, clock: &ManualClock, seed: u64, steps: usize) -> usize {
    // The clock goes back to before some buckets were full, so dropping these would be visible. No
    // row is swept here.
    let memory = Memory::new().clock(clock.clone()).keep_full();
    let mut history = History::new(seed);
    let mut played = 0;
    while played < steps {
        history.pass(clock);
        // The steps travel in one call or in several, and are decided in this order.
        let together = if history.dice.one_in(2) { 1 } else { 1 + history.dice.below(9) };
        let steps: Vec<_> = (0..together).map(|_| history.step()).collect();
        let there: Vec<_> = steps.iter().map(|step| play_step(postgres, step)).collect();
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
        let same = postgres.apply(&[look.charge()]).wait().await.unwrap();
        assert_eq!(applied, same, "seed {seed}");
        history.seen.extend(applied.readings().iter().map(Reading::state));
        let old = history.seen.len().saturating_sub(6);
        history.seen.drain(..old);
    }
    played
}

#[tokio::test]
async fn memory_and_postgres_answer_random_calls_alike() {
    let clock = ManualClock::new(START);
    let builder = with_clock(&clock);
    let (mut played, mut wanted) = (0, 0);
    for seed in seeds(40) {
        clock.set(START);
        let postgres = builder.clone().prefix(format!("t{seed}")).connect().await.unwrap();
        played += play(&postgres, &clock, seed, 180).await;
        wanted += 180;
    }
    assert!(played >= wanted, "{played}");
}

/// A lock that is not to be had ends a call before its deadline, so that callers learn of it. A call
/// for all buckets gives it up at once, so that those who do not need it are answered.
#[tokio::test]
async fn the_server_gives_a_lock_up_before_the_deadline() {
    for (deadline, common) in [(50_000, "10ms"), (1_000_000, "100ms"), (100, "1ms")] {
        let store = Postgres::at(Server::shared().settings());
        let store = store.deadline(Duration::from_micros(deadline)).connect_lazily().unwrap();
        let carrier = store.batcher.carrier();
        let connection = carrier.pool.get().await.unwrap();
        let shown: String = connection.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0);
        assert_eq!(shown, common);
    }
}
