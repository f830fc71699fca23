//! Dumps are read as they were written, or not at all.

mod bounds;
mod clocks;
mod damage;
mod history;
mod resets;

use crate::algebra::Bucket;
use crate::backend::tests::START;
use crate::backend::tests::history::{Step, expect_ready, play_step};
use crate::backend::{Adjustment, Backend, BucketId, Charge, Key, Memory};
use crate::clock::ManualClock;
use crate::quota::Quota;

fn dump_of(memory: &Memory) -> Vec<u8> {
    let mut dump = Vec::new();
    memory.save(&mut dump).unwrap();
    dump
}

fn play(memory: &Memory, step: &Step) -> String {
    expect_ready(play_step(memory, step)).unwrap()
}

fn bucket(quota: Quota) -> Bucket {
    Bucket::new(&quota).unwrap()
}

/// Takes so many tokens of a key, whatever its bucket holds.
fn take(memory: &Memory, key: u64, bucket: &Bucket, tokens: u64) {
    let (key, units) = (Key::from(key), bucket.units(tokens).unwrap());
    let penalty = Adjustment::refund(BucketId::new("limit", &key), bucket, -units);
    expect_ready(memory.adjust(&[penalty])).unwrap();
}

/// The units that a key has, in this quota.
fn value(memory: &Memory, key: u64, bucket: &Bucket) -> i64 {
    let key = Key::from(key);
    let look = Charge::look(BucketId::new("limit", &key), bucket, 0);
    expect_ready(memory.apply(&[look])).unwrap().readings()[0].state().value
}

/// A store on a clock that stands still.
fn at_start(max_keys: usize) -> Memory {
    Memory::new().max_keys(max_keys).clock(ManualClock::new(START))
}
