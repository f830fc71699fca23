//! Charges on two shards in different slots of a cluster.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_testing::redis::Cluster;

use super::{START, expect_ready};
use crate::Redis;
use crate::cross_slot::CrossSlotPair;
use tollgate::algebra::{Bucket, Terms, Verdict};
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Key, Memory};
use tollgate::clock::ManualClock;
use tollgate::{HOUR, MINUTE, Quota, SECOND};

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
        names: redis.names.clone(),
        charge: charge.into_owned(),
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

/// A part that waited behind other calls of its slot was not sent, once another part had failed.
#[tokio::test]
async fn parts_that_wait_while_another_fails_are_carried_out() {
    let (cluster, clock) = (Cluster::start(3), ManualClock::new(START));
    let redis = on(&cluster, &clock).await;
    let bucket = Bucket::new(&Quota::token_bucket(10, HOUR)).unwrap();
    let token = bucket.units(1).unwrap();
    let keys: Vec<_> = (0..100_u64).map(Key::from).collect();
    let id = |nth: usize| BucketId::new("apart", &keys[nth]);
    let node = |nth| cluster.node(cluster.node_of_slot(redis.names.name(id(nth)).slot()));
    let other = (1..100).find(|&nth| node(nth).port() != node(0).port()).unwrap();
    let left = async || {
        let look = Charge::look(id(other), &bucket, 0);
        let looked = redis.apply(&[look]).wait().await.unwrap();
        looked.readings()[0].state().value / token
    };
    assert_eq!(left().await, 10);
    let name = redis.names.name(id(0));
    node(0).command(&[&b"SET"[..], name.as_ref(), b"no bucket"]).ok();

    // As many calls as one slot has in flight, which its node does not answer for now.
    node(other).stop();
    let nothing = Adjustment::refund(id(other), &bucket, 0);
    let in_flight = [(); 2].map(|()| tokio::spawn(redis.adjust(&[nothing]).wait()));
    sleep(Duration::from_millis(100)).await;
    let penalties = [0, other].map(|nth| Adjustment::refund(id(nth), &bucket, -4 * token));
    let penalties = tokio::spawn(redis.adjust(&penalties).wait());
    sleep(Duration::from_millis(300)).await;
    node(other).resume();
    penalties.await.unwrap().unwrap_err();
    for call in in_flight {
        call.await.unwrap().unwrap();
    }
    assert_eq!(left().await, 6);
}

#[tokio::test]
async fn a_shard_gets_back_what_it_has_paid_if_the_other_one_fails() {
    let (cluster, clock) = (Cluster::start(3), ManualClock::new(START));
    let redis = on(&cluster, &clock).await;
    let bucket = Bucket::of_shard(&Quota::token_bucket(8, HOUR).shards(2)).unwrap();
    let key = Key::GLOBAL;
    let units = |tokens| bucket.units(tokens).unwrap();
    let node = |id| cluster.node_of_slot(redis.names.name(id).slot());
    let id = |shard| BucketId::new("hot", &key).shard(shard);
    let other = (1..100).find(|&shard| node(id(shard)) != node(id(0))).unwrap();
    let left = async || {
        let looks = [0, other].map(|shard| Charge::look(id(shard), &bucket, 0));
        let looked = redis.apply(&looks).wait().await.unwrap();
        [0, 1].map(|nth| looked.readings()[nth].state().value)
    };
    assert_eq!(left().await, [units(4); 2]);

    // The second shard refuses alone, as that stores nothing, and cannot pay its part.
    let full = cluster.node(node(id(other)));
    full.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    let charge = Charge::take(id(0), &bucket, units(6)).second_shard(other);
    let failed = redis.apply(&[charge]).wait().await.unwrap_err();
    assert!(failed.is_full(), "{failed:?}");
    assert_eq!(left().await, [units(4); 2]);

    full.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    redis.apply(&[charge]).wait().await.unwrap();
    let left = left().await;
    assert_eq!(left[0] + left[1], units(2));
}
