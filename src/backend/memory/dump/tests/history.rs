//! A store that was saved and loaded answers as the one that went on, to the bit.

use std::time::Duration;

use tollgate_testing::cases::seeds;

use super::{dump_of, play};
use crate::algebra::BucketNumbers;
use crate::backend::Memory;
use crate::backend::tests::START;
use crate::backend::tests::history::History;
use crate::clock::{Clock, ManualClock};

const STEPS: usize = 160;

/// Plays a history to a store that goes on, and to one that is saved and loaded now and then.
fn play_both(seed: u64, bounds: &[usize]) {
    let clock = ManualClock::new(START);
    let mut history = History::new(seed);
    let store = |bound| Memory::new().max_keys(bound).clock(clock.clone());
    let original = store(history.dice.pick(bounds));
    let mut other = store(history.dice.pick(bounds));
    let mut saves = 0;
    for nth in 0..STEPS {
        let step = history.step();
        let [here, there] = [&original, &other].map(|memory| play(memory, &step));
        assert_eq!(here, there, "seed {seed}, step {nth}, {saves} saves: {step:?}");
        // Forwards only: buckets that are full are not in a dump.
        let most = if history.dice.one_in(9) { 1 << 44 } else { 1 << 24 };
        clock.advance(Duration::from_micros(history.dice.up_to(most)));
        if nth == STEPS / 2 || history.dice.one_in(30) {
            other = store(history.dice.pick(bounds)).load(dump_of(&other).as_slice()).unwrap();
            saves += 1;
        }
    }
    // What is in the two stores is the same as well.
    assert!(saves > 0);
    assert_eq!(contents(&original), contents(&other), "seed {seed} at {:?}", clock.now());
}

/// What a store holds, but for the secrets of its hash: quotas, values and times.
fn contents(memory: &Memory) -> Vec<String> {
    let mut found = Vec::new();
    for shard in memory.shards.iter() {
        let shard = shard.lock();
        for slot in shard.table.iter() {
            let (bucket, state) = (shard.quotas.get(slot.quota().unwrap()).unwrap(), slot.state());
            // A full bucket may have been dropped in one of the stores.
            if !bucket.is_droppable_when_full() || bucket.drop_at(state) > memory.now() {
                // A dump names a calendar by its step. A bucket that another quota has changed may have
                // forgotten its own, and is given it again when it is loaded.
                found.push(format!("{:?} {state:?}", BucketNumbers::new(bucket)));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Random quotas of both kinds with shards, debts, blocks, penalties, resets and changes of the
/// quota, in stores of one, some and many shards.
#[test]
fn a_loaded_store_answers_random_calls_as_the_saved_one() {
    for seed in seeds(150) {
        play_both(seed, &[100, 5_000, 70_000]);
    }
}
