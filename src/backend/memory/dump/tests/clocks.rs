//! The time of a loaded store does not run behind its dump.

use super::{bucket, dump_of, take, value};
use crate::algebra::Bucket;
use crate::backend::tests::START;
use crate::backend::tests::history::expect_ready;
use crate::backend::{Adjustment, Backend, BucketId, Charge, Key, Memory};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::quota::{HOUR, MINUTE, Quota, SECOND};

fn store(clock: &ManualClock) -> Memory {
    Memory::new().max_keys(100).clock(clock.clone())
}

fn tokens(memory: &Memory, key: u64, bucket: &Bucket) -> u64 {
    bucket.tokens(value(memory, key, bucket)).whole()
}

#[test]
fn buckets_gain_for_the_time_between_the_save_and_the_load() {
    let (clock, quota) = (ManualClock::new(START), bucket(Quota::token_bucket(60, MINUTE)));
    let memory = store(&clock);
    take(&memory, 1, &quota, 60);
    let dump = dump_of(&memory);
    clock.advance(20 * SECOND);
    let loaded = store(&clock).load(dump.as_slice()).unwrap();
    assert_eq!(tokens(&loaded, 1, &quota), 20);
}

/// Otherwise the bucket would gain nothing for a day, and look as if it was blocked.
#[test]
fn a_clock_that_was_set_back_freezes_no_bucket() {
    let (clock, quota) = (ManualClock::new(START), bucket(Quota::token_bucket(60, MINUTE)));
    let window = bucket(Quota::fixed_window(5, HOUR).start(START));
    let memory = store(&clock);
    take(&memory, 1, &quota, 100);
    take(&memory, 2, &window, 5);
    clock.advance(10 * SECOND);
    let dump = dump_of(&memory);

    let late = ManualClock::new(Timestamp::from_micros(START.as_micros() - 86_400_000_000));
    for loaded in [
        store(&late).load(dump.as_slice()).unwrap(),
        // Also if the clock is set afterwards.
        Memory::new().max_keys(9).load(dump.as_slice()).unwrap().clock(late.clone()),
    ] {
        assert_eq!(loaded.now(), START + 10 * SECOND);
        assert_eq!(value(&loaded, 1, &quota), value(&memory, 1, &quota));
        late.advance(31 * SECOND);
        assert_eq!(tokens(&loaded, 1, &quota), 1);
        // The window ends as long after the load as it would have after the save.
        late.advance(HOUR - 41 * SECOND - SECOND / 2);
        assert_eq!(tokens(&loaded, 2, &window), 0);
        late.advance(SECOND / 2);
        assert_eq!(tokens(&loaded, 2, &window), 5);
        late.set(Timestamp::from_micros(START.as_micros() - 86_400_000_000));
    }
}

#[test]
fn a_block_lasts_as_long_as_it_would_have() {
    let (clock, quota) = (ManualClock::new(START), bucket(Quota::token_bucket(60, MINUTE)));
    let (memory, key) = (store(&clock), Key::from(1_u64));
    let id = BucketId::new("limit", &key);
    expect_ready(memory.adjust(&[Adjustment::block(id, &quota, HOUR)])).unwrap();
    clock.advance(10 * MINUTE);
    let dump = dump_of(&memory);
    for behind in [0, 1_000_000, 86_400_000_000] {
        let now = Timestamp::from_micros(clock.now().as_micros() - behind);
        let loaded = store(&ManualClock::new(now)).load(dump.as_slice()).unwrap();
        let charge = Charge::take(id, &quota, 0);
        let applied = expect_ready(loaded.apply(&[charge])).unwrap();
        assert_eq!(applied.wait(), 50 * MINUTE, "{behind} behind");
    }
}

#[test]
fn the_system_clock_is_set_ahead_of_a_dump_from_the_future() {
    let future = Timestamp::from_micros(32_503_680_000_000_000);
    let quota = bucket(Quota::token_bucket(60, MINUTE));
    let memory = store(&ManualClock::new(future));
    take(&memory, 1, &quota, 60);
    let loaded = Memory::new().max_keys(9).load(dump_of(&memory).as_slice()).unwrap();
    let now = loaded.now();
    assert!(future <= now && now < future + HOUR, "{now:?}");
    // The next dump has that time, so the next store is not behind it either.
    let again = Memory::new().max_keys(9).load(dump_of(&loaded).as_slice()).unwrap();
    assert!(again.now() >= now);
}
