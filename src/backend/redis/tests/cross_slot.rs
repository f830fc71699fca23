//! Charges on two shards in different slots of a cluster.

use tollgate_testing::redis::Cluster;

use super::{START, expect_ready};
use crate::algebra::{Bucket, Terms, Verdict};
use crate::backend::redis::cross_slot::CrossSlotPair;
use crate::backend::remote::operation::{NamedBucketId, NamedCharge};
use crate::backend::{Backend, BucketId, Charge, Key, Memory, Redis};
use crate::clock::ManualClock;
use crate::{MINUTE, Quota, SECOND};

fn terms(bucket: &Bucket) -> Terms {
    Terms::reserving(bucket.floor())
}

fn bucket() -> Bucket {
    Bucket::of_shard(&Quota::token_bucket(2, SECOND).max_reserved(20).shards(2)).unwrap()
}

async fn on(cluster: &Cluster, clock: &ManualClock) -> Redis {
    let builder = Redis::cluster(cluster.urls()).clock(clock.clone()).deadline(MINUTE);
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn a_cost_of_zero_waits_for_shards_in_debt() {
    let cluster = Cluster::start(3);
    let clock = ManualClock::new(START);
    let (redis, memory) = (on(&cluster, &clock).await, Memory::new().clock(clock));
    let bucket = bucket();
    let key = Key::GLOBAL;
    let id = BucketId::new("hot", &key);
    for units in [bucket.units(3).unwrap(), bucket.units(5).unwrap()] {
        for shard in [0, 1] {
            let debt = Charge::take(id.shard(shard), &bucket, units).terms(terms(&bucket));
            let here = expect_ready(memory.apply(&[debt])).unwrap();
            assert_eq!(redis.apply(&[debt]).wait().await.unwrap(), here);
        }
        let nothing = Charge::take(id, &bucket, 0).second_shard(1).terms(terms(&bucket));
        let here = expect_ready(memory.apply(&[nothing])).unwrap();
        assert_eq!(here.verdict(), Verdict::Reserved);
        assert_eq!(redis.apply(&[nothing]).wait().await.unwrap(), here);
    }
}

#[tokio::test]
async fn a_reservation_that_the_other_shard_refuses_stays_if_others_came_after_it() {
    let cluster = Cluster::start(3);
    let clock = ManualClock::new(START);
    let redis = on(&cluster, &clock).await;
    let (bucket, key) = (bucket(), Key::GLOBAL);
    let id = BucketId::new("hot", &key);
    let units = |tokens| bucket.units(tokens).unwrap();
    let charge = Charge::take(id, &bucket, units(14)).second_shard(1).terms(terms(&bucket));
    let pair = CrossSlotPair {
        batcher: redis.batcher.clone(),
        shards: [id, id.shard(1)].map(|id| NamedBucketId::new(id, &redis.names)),
        charge: NamedCharge::new("redis", &charge, &redis.names).unwrap(),
        deadline: redis.batcher.deadline(),
    };

    let half = pair.take(0, units(7), terms(&bucket)).await.unwrap().reading;
    assert_eq!((half.verdict(), half.state().value), (Verdict::Reserved, -units(6)));
    // Another reservation is promised the place behind it, and keeps it: its work runs when ten
    // tokens have come.
    let behind = Charge::take(id, &bucket, units(4)).terms(terms(&bucket));
    let behind = redis.apply(&[behind]).wait().await.unwrap();
    assert_eq!((behind.verdict(), behind.wait()), (Verdict::Reserved, SECOND * 10));
    assert_eq!(pair.give_back(0, &half).await.unwrap().1, behind.readings()[0].state());

    let last = pair.take(1, units(7), terms(&bucket)).await.unwrap().reading;
    assert_eq!(last.verdict(), Verdict::Reserved);
    assert_eq!(pair.give_back(1, &last).await.unwrap().1.value, bucket.capacity());
}
