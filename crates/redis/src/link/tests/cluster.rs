//! A cluster in which slots move and nodes die.

use std::pin::pin;
use std::time::Duration;

use ::redis::Value;
use tokio::time::Instant;

use super::super::{Call, ConnectOptions, Link, Servers};
use super::process::{Server, until};
use super::single::{COUNT, WITHIN, chain};
use tollgate::backend::BackendError;
use tollgate_kit::key_name::slot;

/// A key in a slot of the first node, and one in a slot of the second.
const FIRST: &str = "b";
const SECOND: &str = "a";

/// Two masters, each with half of the slots.
async fn cluster() -> [Server; 2] {
    let nodes = [Server::start_node(), Server::start_node()];
    for (node, slots) in nodes.iter().zip([0..8_192, 8_192..16_384]) {
        node.up().await;
        // Redis 6.2 takes no ranges.
        let slots: Vec<_> = slots.map(|slot: u16| slot.to_string()).collect();
        let slots = slots.iter().map(String::as_str);
        ok(node, &["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect::<Vec<_>>()).await;
    }
    let port = nodes[1].port.to_string();
    ok(&nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port]).await;
    for node in &nodes {
        until("the cluster is whole", async || {
            let info: String = node.ask(&["CLUSTER", "INFO"]).await.unwrap();
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        })
        .await;
    }
    assert!(slot::slot_of(FIRST.as_bytes()) <= 8191 && slot::slot_of(SECOND.as_bytes()) > 8191);
    nodes
}

async fn ok(node: &Server, command: &[&str]) {
    assert_eq!(node.ask::<Value>(command).await.unwrap(), Value::Okay, "{command:?}");
}

fn link(node: &Server) -> Link {
    let servers = Servers::cluster(&[node.url()], &ConnectOptions::default()).unwrap();
    Link::open(servers, COUNT, WITHIN).unwrap()
}

/// Waits until the link has the slots. A machine that stalls does not read them in time at once.
pub(super) async fn ready(link: &Link) {
    until("the slots are read", async || link.ready().await.is_ok()).await;
}

/// Waits until the link tells what is wrong with the answer of its node.
pub(super) async fn told_of_slots(link: &Link) -> String {
    let mut told = String::new();
    until("an answer is read in time", async || {
        told = chain(&link.ready().await.unwrap_err());
        !told.ends_with("did not report the slots")
    })
    .await;
    told
}

async fn call(link: &Link, key: &str) -> Result<Value, BackendError> {
    link.call(Call::new(&[key], b"", Instant::now() + Duration::from_secs(30))).await
}

#[tokio::test]
async fn calls_follow_their_slots_to_another_node() {
    let [first, second] = cluster().await;
    let link = link(&first);
    ready(&link).await;
    assert!(link.is_cluster());
    assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(1));
    assert_eq!(call(&link, SECOND).await.unwrap(), Value::Int(1));

    // The key is on its way: the second node has it, and answers calls that follow an `ASKING`.
    ok(&second, &["SCRIPT", "FLUSH"]).await;
    let slot = slot::slot_of(FIRST.as_bytes()).to_string();
    let first_id: String = first.ask(&["CLUSTER", "MYID"]).await.unwrap();
    let second_id: String = second.ask(&["CLUSTER", "MYID"]).await.unwrap();
    ok(&second, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &first_id]).await;
    ok(&first, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &second_id]).await;
    let port = second.port.to_string();
    ok(&first, &["MIGRATE", "127.0.0.1", &port, FIRST, "0", "5000"]).await;
    assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(2));

    // The slot has arrived.
    for node in [&second, &first] {
        ok(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &second_id]).await;
    }
    assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(3));
    assert_eq!(second.ask::<u32>(&["GET", FIRST]).await.unwrap(), 3);

    // After the slots are read again, the first node gets no more calls for it.
    until("the slots have been read again", async || {
        let before = evaluated(&first).await;
        call(&link, FIRST).await.unwrap();
        evaluated(&first).await == before
    })
    .await;
}

/// How often a node has run the script.
async fn evaluated(node: &Server) -> usize {
    let info: String = node.ask(&["INFO", "commandstats"]).await.unwrap();
    let calls = info.lines().filter_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let count = |line: &str| {
        let calls = |part: &str| {
            let (_, count) = part.split_once('=').unwrap();
            count.parse::<usize>().unwrap()
        };
        let counted = ["calls=", "rejected_calls="];
        line.split(',')
            .filter(|part| counted.iter().any(|c| part.starts_with(c)))
            .map(calls)
            .sum::<usize>()
    };
    calls.map(count).sum::<usize>()
}

#[tokio::test]
async fn a_dead_node_holds_up_no_calls_to_other_nodes() {
    let [first, mut second] = cluster().await;
    // An answer may take as long as a call may.
    let servers = Servers::cluster(&[second.url()], &ConnectOptions::default()).unwrap();
    let link = Link::open(servers, COUNT, Duration::from_secs(30)).unwrap();
    assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(1));
    assert_eq!(call(&link, SECOND).await.unwrap(), Value::Int(1));

    // While the second node hangs, and a call waits for it, calls to the first node are answered.
    second.signal("-STOP");
    let mut hung = pin!(call(&link, SECOND));
    let answered = async {
        for count in 2..10 {
            assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(count));
        }
    };
    tokio::select! {
        biased;
        given_up = &mut hung => panic!("{given_up:?}"),
        () = answered => {}
    }

    // So they are when the second node is gone.
    second.kill();
    hung.await.unwrap_err();
    until("the loss is reported", async || {
        chain(&call(&link, SECOND).await.unwrap_err()).contains("Connection refused")
    })
    .await;
    for count in 10..20 {
        assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(count));
    }
    second.restart();
    until("the link has recovered", async || call(&link, SECOND).await.is_ok()).await;
    drop(first);
}

#[tokio::test]
async fn a_replica_that_takes_over_is_found() {
    let [mut first, second] = cluster().await;
    let replica = Server::start_node();
    replica.up().await;
    // Not the first alone: it dies, and the second could have heard of the replica from it only.
    for node in [&first, &second] {
        ok(&replica, &["CLUSTER", "MEET", "127.0.0.1", &node.port.to_string()]).await;
    }
    let id: String = first.ask(&["CLUSTER", "MYID"]).await.unwrap();
    until("the replica follows its master", async || {
        replica.ask::<Value>(&["CLUSTER", "REPLICATE", &id]).await.is_ok()
    })
    .await;
    for (node, other) in [(&first, &replica), (&second, &replica), (&replica, &second)] {
        until("the nodes know each other", async || {
            let slots: Value = node.ask(&["CLUSTER", "SLOTS"]).await.unwrap();
            format!("{slots:?}").contains(&format!("int({})", other.port))
        })
        .await;
    }
    let link = link(&first);
    assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(1));
    until("the count has arrived", async || {
        let info: String = replica.ask(&["INFO", "keyspace"]).await.unwrap();
        info.contains("keys=1,")
    })
    .await;
    first.kill();
    assert!(call(&link, FIRST).await.is_err());
    ok(&replica, &["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    until("the link has recovered", async || call(&link, FIRST).await.is_ok()).await;
    assert_eq!(call(&link, FIRST).await.unwrap(), Value::Int(3));
    drop(second);
}

#[tokio::test]
async fn a_server_that_is_not_a_cluster_is_reported() {
    let server = Server::start(&[]);
    server.up().await;
    let told = told_of_slots(&link(&server)).await;
    assert!(told.contains("answered `ERR This instance has cluster support disabled`"), "{told}");
}

#[tokio::test]
async fn a_node_of_a_cluster_is_not_taken_for_a_single_server() {
    let [first, _second] = cluster().await;
    let servers = Servers::single(&first.url(), &ConnectOptions::default()).unwrap();
    let link = Link::open(servers, COUNT, WITHIN).unwrap();
    assert_eq!(
        chain(&call(&link, SECOND).await.unwrap_err()),
        format!(
            "redis backend can never decide this: 127.0.0.1:{} is a node of a cluster (use \
             `Redis::cluster`)",
            first.port
        )
    );
}
