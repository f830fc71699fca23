//! Permits of the saved store, after a reset: a wrapper of a user could give them back to the
//! loaded one.

use super::{at_start, bucket, dump_of, value};
use crate::algebra::Bucket;
use crate::backend::reset_log::ResetMark;
use crate::backend::tests::history::expect_ready;
use crate::backend::{Adjustment, Backend, BucketId, Charge, Key, Memory};
use crate::quota::{DAY, Quota};

fn take(memory: &Memory, key: &Key, quota: &Bucket) -> ResetMark {
    let charge = Charge::take(BucketId::new("limit", key), quota, quota.units(5).unwrap());
    expect_ready(memory.apply(&[charge])).unwrap().readings()[0].mark()
}

fn give_back(memory: &Memory, key: &Key, quota: &Bucket, mark: ResetMark) {
    let refund = Adjustment::refund(BucketId::new("limit", key), quota, quota.units(5).unwrap());
    expect_ready(memory.adjust(&[refund.with_mark(mark)])).unwrap();
}

#[test]
fn a_permit_from_before_a_reset_gives_nothing_back_to_the_loaded_store() {
    let (quota, key, other) =
        (bucket(Quota::token_bucket(10, DAY)), Key::from(1_u64), Key::from(2_u64));
    let memory = at_start(5_000);
    let before = take(&memory, &key, &quota);
    for reset in [&other, &key] {
        expect_ready(memory.reset(&[BucketId::new("limit", reset)])).unwrap();
    }
    take(&memory, &key, &quota);
    for bound in [100, 5_000, 1_000_000] {
        let loaded = at_start(bound).load(dump_of(&memory).as_slice()).unwrap();
        let five = quota.units(5).unwrap();
        assert_eq!(value(&loaded, 1, &quota), five);
        give_back(&loaded, &key, &quota, before);
        assert_eq!(value(&loaded, 1, &quota), five, "it was forgiven by the reset");
        // The permits of the loaded store itself are as those of any other.
        let now = take(&loaded, &key, &quota);
        assert_eq!(value(&loaded, 1, &quota), 0);
        give_back(&loaded, &key, &quota, now);
        assert_eq!(value(&loaded, 1, &quota), five);
        let now = take(&loaded, &key, &quota);
        expect_ready(loaded.reset(&[BucketId::new("limit", &key)])).unwrap();
        take(&loaded, &key, &quota);
        give_back(&loaded, &key, &quota, now);
        assert_eq!(value(&loaded, 1, &quota), five);
    }
}
