//! Stores with another bound than the one that was saved.

use super::{at_start, bucket, dump_of, take, value};
use crate::backend::tests::history::expect_ready;
use crate::backend::{Adjustment, Backend, BucketId, Key};
use crate::quota::{DAY, HOUR, Quota};

const BOUNDS: [usize; 4] = [3_000, 10_000, 300_000, 1_000_000];

/// One shard, some and many: a bucket is found in any.
#[test]
fn a_dump_fits_into_a_store_with_any_larger_bound() {
    let quota = bucket(Quota::token_bucket(100, DAY));
    for from in BOUNDS {
        let memory = at_start(from);
        (0..1_000).for_each(|key| take(&memory, key, &quota, 1 + key % 70));
        let dump = dump_of(&memory);
        for to in BOUNDS {
            let loaded = at_start(to).load(dump.as_slice()).unwrap();
            assert_eq!(loaded.len(), 1_000, "{from} to {to}");
            for key in 0..1_000 {
                let (there, here) = (value(&loaded, key, &quota), value(&memory, key, &quota));
                assert_eq!(there, here, "{from} to {to}");
            }
        }
    }
}

/// All buckets of one shard: the bound is exact.
#[test]
fn a_lower_bound_keeps_the_buckets_that_have_used_most() {
    let quota = bucket(Quota::token_bucket(2_000, DAY));
    // Any order of the buckets in the dump, as the hash is random.
    for _ in 0..5 {
        let memory = at_start(10_000);
        (0..1_000).for_each(|key| take(&memory, key, &quota, 1 + key));
        let loaded = at_start(100).load(dump_of(&memory).as_slice()).unwrap();
        assert_eq!(loaded.len(), 100);
        for key in 0..1_000 {
            let wanted = if key < 900 { quota.capacity() } else { value(&memory, key, &quota) };
            assert_eq!(value(&loaded, key, &quota), wanted, "{key}");
        }
    }
}

/// As in a store that is flooded: the quota with the most buckets pays, and blocked buckets go
/// last.
#[test]
fn a_lower_bound_evicts_from_the_quota_that_holds_the_most() {
    let (few, many) =
        (bucket(Quota::token_bucket(5, HOUR)), bucket(Quota::token_bucket(1_000, DAY)));
    let memory = at_start(10_000);
    (0..2_000).for_each(|key| take(&memory, key, &many, 900));
    (2_000..2_040).for_each(|key| take(&memory, key, &few, 1));
    for key in (2_040_u64..2_050).map(Key::from) {
        let block = Adjustment::block(BucketId::new("limit", &key), &few, DAY);
        expect_ready(memory.adjust(&[block])).unwrap();
    }
    let loaded = at_start(200).load(dump_of(&memory).as_slice()).unwrap();
    assert_eq!(loaded.len(), 200);
    for key in 2_000..2_050 {
        assert_eq!(value(&loaded, key, &few), value(&memory, key, &few), "{key}");
    }
}

/// Blocked buckets hold at most half of a store, and those whose blocks end last stay.
#[test]
fn a_lower_bound_keeps_the_blocks_that_end_last() {
    let quota = bucket(Quota::token_bucket(5, HOUR));
    let memory = at_start(10_000);
    for nth in 0_u64..300 {
        let key = Key::from(nth);
        let time = DAY + HOUR * u32::try_from(nth * 7 % 300).unwrap();
        let block = Adjustment::block(BucketId::new("limit", &key), &quota, time);
        expect_ready(memory.adjust(&[block])).unwrap();
    }
    (300..600).for_each(|key| take(&memory, key, &quota, 3));
    let loaded = at_start(100).load(dump_of(&memory).as_slice()).unwrap();
    assert_eq!(loaded.len(), 100);
    let blocked = |nth: &u64| value(&loaded, *nth, &quota) < 0;
    let kept: Vec<u64> = (0_u64..300).filter(blocked).map(|nth| nth * 7 % 300).collect();
    assert!((40..=51).contains(&kept.len()), "{}", kept.len());
    let first = 300 - kept.len() as u64;
    assert!(kept.iter().all(|place| *place >= first), "{kept:?}");
}

/// `max_keys` is a setting, and does not undo the load before it.
#[test]
fn a_bound_that_is_set_after_the_load_keeps_the_buckets() {
    let quota = bucket(Quota::token_bucket(100, DAY));
    let memory = at_start(10_000);
    (0..50).for_each(|key| take(&memory, key, &quota, 1 + key));
    let dump = dump_of(&memory);
    let load = || at_start(10_000).load(dump.as_slice()).unwrap();
    for bound in [1_000_000, 3_000, 50] {
        let loaded = load().max_keys(bound);
        assert_eq!(loaded.len(), 50);
        for key in 0..50 {
            assert_eq!(value(&loaded, key, &quota), value(&memory, key, &quota), "{bound}");
        }
    }
    assert_eq!(load().max_keys(10).len(), 10);
}
