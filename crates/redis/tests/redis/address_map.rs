//! Clusters that name their nodes by addresses which lead nowhere, and the map to those that do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::{MINUTE, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Cluster, until};
use tollgate_testing::traffic::{COUNTED, chain, taken, wait_until};

/// A cluster whose nodes are named by names that do not resolve, and by ports at which they are not.
fn cluster() -> Cluster {
    let cluster = Cluster::start(3);
    for (nth, node) in cluster.nodes().iter().enumerate() {
        let (host, port) = announced(nth);
        for setting in [
            ["cluster-announce-hostname", &host],
            ["cluster-announce-port", &port.to_string()],
            ["cluster-preferred-endpoint-type", "hostname"],
        ] {
            node.command(&[&["CONFIG", "SET"], &setting[..]].concat()).ok();
        }
    }
    for node in cluster.nodes() {
        until("a node knows how all are announced", || {
            let slots = node.command(&["CLUSTER", "SLOTS"]);
            let mut named: Vec<_> = slots
                .list()
                .iter()
                .map(|range| {
                    let master = range.list()[2].list();
                    (master[0].text().to_owned(), u16::try_from(master[1].int()).unwrap())
                })
                .collect();
            named.sort_unstable();
            named == [0, 1, 2].map(announced)
        });
    }
    cluster
}

fn announced(nth: usize) -> (String, u16) {
    (format!("node-{nth}.invalid"), 7000 + u16::try_from(nth).unwrap())
}

/// Where the nodes of a cluster are, by what they are announced as.
fn places(cluster: &Cluster) -> HashMap<(String, u16), u16> {
    let nodes = cluster.nodes().iter().enumerate();
    nodes.map(|(nth, node)| (announced(nth), node.port())).collect()
}

fn place(places: &HashMap<(String, u16), u16>, host: &str, port: u16) -> Option<(String, u16)> {
    let port = places.get(&(host.to_owned(), port))?;
    Some(("127.0.0.1".to_owned(), *port))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_reached_where_the_map_says() {
    let cluster = cluster();
    let builder = Redis::cluster([cluster.node(0).url()]).deadline(MINUTE);

    let unmapped = RateLimiter::new(builder.clone().connect().await.unwrap());
    let error = unmapped.limit(&COUNTED).key(0_u64).await.unwrap_err();
    assert!(chain(&error).contains(".invalid:700"), "{}", chain(&error));

    let places = places(&cluster);
    let redis = builder.address_map(move |host, port| place(&places, host, port));
    let limiter = RateLimiter::new(redis.connect().await.unwrap());
    let ask = async |key: u64| limiter.limit(&COUNTED).key(key).await.map(drop).unwrap();
    for key in 0..32 {
        ask(key).await;
    }
    // Also where a node redirects to, while a slot moves (`ASK`) and after it has (`MOVED`).
    let keys = cluster.node(0).command(&["KEYS", "*"]);
    let slot = cluster.slot_of(keys.list()[0].bytes());
    cluster.begin_move(slot, 0, 1);
    cluster.move_keys(slot, 0, 1);
    for key in 0..32 {
        ask(key).await;
    }
    cluster.finish_move(slot, 0, 1);
    for key in 0..32 {
        ask(key).await;
        assert_eq!(taken(&limiter, key).await, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_panics_fails_what_needs_it_until_it_does_not() {
    let cluster = cluster();
    let (places, panics) = (places(&cluster), Arc::new(AtomicBool::new(true)));
    let of_map = Arc::clone(&panics);
    let redis = Redis::cluster([cluster.node(0).url()]).address_map(move |host, port| {
        assert!(!of_map.load(Ordering::Relaxed), "as the test wants");
        place(&places, host, port)
    });
    let limiter = RateLimiter::new(redis.deadline(MINUTE).connect_lazily().unwrap());
    let error = limiter.limit(&COUNTED).key(0_u64).await.unwrap_err();
    assert!(chain(&error).contains("the address map panicked at node-"), "{}", chain(&error));
    assert!(error.is_outage(), "{error:?}");
    panics.store(false, Ordering::Relaxed);
    wait_until("the map is asked again", async || limiter.limit(&COUNTED).key(0_u64).await.is_ok())
        .await;
    assert_eq!(taken(&limiter, 0).await, 1);
}
