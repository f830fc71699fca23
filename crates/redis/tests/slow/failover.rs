//! Masters that change and slots that move under traffic: calls are answered by their deadline, no
//! token is taken twice, and the store recovers by itself.
//!
//! The tests wait for calls that reach their deadline of 50 ms, and for the sentinels, which take
//! seconds to agree.

use std::time::Instant;

use tollgate_redis::{Redis, RedisBuilder};
use tollgate_testing::redis::{Cluster, Sentinels};
use tollgate_testing::traffic::{DEADLINE, Lost, RECOVERY, SILENT, Told, Traffic};

/// The errors that calls may get while a node is gone or replaced.
const CAUSES: [&str; 9] = [
    "lost the connection to ",
    "cannot connect to 127.0.0.1",
    "no connection to ",
    "is not a master",
    "did not report its role",
    "did not name the master",
    "closed the connection at once",
    "answered `CLUSTERDOWN",
    "answered `READONLY",
];

fn to(sentinels: &Sentinels) -> RedisBuilder {
    Redis::sentinel(sentinels.urls(), sentinels.master_name()).deadline(DEADLINE)
}

fn of(cluster: &Cluster) -> RedisBuilder {
    Redis::cluster(cluster.urls()).deadline(DEADLINE)
}

/// The store as it is in the end, asked with a deadline that no server exceeds.
fn held(store: RedisBuilder) -> Redis {
    store.deadline(RECOVERY).connect_lazily().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_is_killed() {
    let sentinels = Sentinels::start();
    let traffic = Traffic::begin(to(&sentinels).connect_lazily().unwrap(), 32);
    traffic.goes_on().await;
    let killed = sentinels.kill_master();
    traffic.is_told("refused").await;
    sentinels.until_replaced(killed);
    traffic.goes_on().await;
    let after = Instant::now();
    traffic.goes_on().await;
    let log = traffic.end().await;
    log.all_in_time().errors_name(&CAUSES);
    log.is_what(held(to(&sentinels)), Lost::Something(after)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_is_replaced_while_it_runs() {
    let sentinels = Sentinels::start();
    let traffic = Traffic::begin(to(&sentinels).connect_lazily().unwrap(), 32);
    traffic.goes_on().await;
    sentinels.failover();
    // The old master learns it last, and is asked until then.
    sentinels.until_obeyed();
    traffic.goes_on().await;
    let after = Instant::now();
    traffic.goes_on().await;
    let log = traffic.end().await;
    log.all_in_time().errors_name(&CAUSES);
    log.is_what(held(to(&sentinels)), Lost::Something(after)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_move() {
    let cluster = Cluster::start(3);
    let traffic = Traffic::begin(of(&cluster).connect_lazily().unwrap(), 64);
    traffic.goes_on().await;
    let slots = slots_in_use(&cluster);
    assert!(slots.len() > 16, "{slots:?}");
    for &slot in slots.iter().take(8) {
        let from = cluster.node_of_slot(slot);
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to);
        traffic.is_answered(2).await;
        cluster.move_keys(slot, from, to);
        traffic.is_answered(2).await;
        cluster.finish_move(slot, from, to);
        traffic.goes_on().await;
    }
    let log = traffic.end().await;
    // No call sees it.
    log.all_in_time().errors_name(&SILENT);
    log.is_what(held(of(&cluster)), Lost::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_hangs() {
    let cluster = Cluster::start(3);
    let traffic = Traffic::begin(of(&cluster).connect_lazily().unwrap(), 64);
    traffic.goes_on().await;
    cluster.node(1).stop();
    traffic.is_answered(20).await;
    cluster.node(1).resume();
    traffic.goes_on().await;
    let log = traffic.end().await;
    log.all_in_time().errors_name(&CAUSES);
    assert!(log.count(Told::Late) > 0);
    log.is_what(held(of(&cluster)), Lost::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_restarts_empty() {
    let cluster = Cluster::start(3);
    let traffic = Traffic::begin(of(&cluster).connect_lazily().unwrap(), 64);
    traffic.goes_on().await;
    cluster.node(2).kill();
    traffic.is_told("refused").await;
    cluster.node(2).restart();
    traffic.goes_on().await;
    let after = Instant::now();
    traffic.goes_on().await;
    let log = traffic.end().await;
    log.all_in_time().errors_name(&CAUSES);
    log.is_what(held(of(&cluster)), Lost::Something(after)).await;
}

/// The slots that have keys.
fn slots_in_use(cluster: &Cluster) -> Vec<u16> {
    let keys = cluster.nodes().iter().map(|node| node.command(&["KEYS", "*"]));
    let slots = keys.flat_map(|keys| {
        keys.list().iter().map(|key| cluster.slot_of(key.bytes())).collect::<Vec<_>>()
    });
    slots.collect()
}
