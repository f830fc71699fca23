//! The master that sentinels name, before and after a failover.

use std::time::Duration;

use ::redis::Value;
use tokio::time::Instant;

use super::super::{Call, ConnectOptions, Link, Servers};
use super::process::{Server, until};
use super::single::{COUNT, WITHIN, chain};

fn link(sentinels: &[&Server]) -> Link {
    let urls: Vec<String> = sentinels.iter().map(|sentinel| sentinel.url()).collect();
    let servers = Servers::sentinel(&urls, "shop", None, &ConnectOptions::default()).unwrap();
    Link::open(servers, COUNT, WITHIN).unwrap()
}

async fn call(link: &Link) -> Result<Value, crate::backend::BackendError> {
    link.call(Call::new(&["count"], b"", Instant::now() + Duration::from_secs(30))).await
}

#[tokio::test]
async fn the_current_master_is_asked_though_a_sentinel_hangs() {
    let [one, two] = [Server::start(&[]), Server::start(&[])];
    let sentinels = [Server::start_sentinel(&one).await, Server::start_sentinel(&one).await];
    two.up().await;
    sentinels[0].signal("-STOP");
    let link = link(&[&sentinels[0], &sentinels[1]]);
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    assert_eq!(one.ask::<u32>(&["GET", "count"]).await.unwrap(), 1);

    // The other server becomes the master, and the first one its replica.
    for command in [
        &["SENTINEL", "REMOVE", "shop"] as &[&str],
        &["SENTINEL", "MONITOR", "shop", "127.0.0.1", &two.port.to_string(), "1"],
    ] {
        assert_eq!(sentinels[1].ask::<Value>(command).await.unwrap(), Value::Okay);
    }
    let port = two.port.to_string();
    let _: Value = one.ask(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
    until("the new master is asked", async || {
        call(&link).await.is_ok()
            && two.ask::<Option<u32>>(&["GET", "count"]).await.unwrap() > Some(0)
    })
    .await;
    sentinels[0].signal("-CONT");
}

/// Regression: a silent server took all the time of each attempt.
#[tokio::test]
async fn the_master_is_reached_though_a_sentinel_names_a_server_that_hangs() {
    let [old, new] = [Server::start(&[]), Server::start(&[])];
    let behind = [Server::start_sentinel(&old).await, Server::start_sentinel(&old).await];
    let sentinel = Server::start_sentinel(&new).await;
    old.signal("-STOP");
    // Most of the time, the outdated sentinel is the first to answer.
    for _ in 0..4 {
        let link = link(&[&behind[0], &behind[1], &sentinel]);
        link.ready().await.unwrap();
        assert!(call(&link).await.is_ok());
    }
    assert_eq!(new.ask::<u32>(&["GET", "count"]).await.unwrap(), 4);
    old.signal("-CONT");
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_reported() {
    let one = Server::start(&[]);
    let sentinel = Server::start_sentinel(&one).await;
    let servers =
        Servers::sentinel(&[sentinel.url()], "shp", None, &ConnectOptions::default()).unwrap();
    let link = Link::open(servers, COUNT, WITHIN).unwrap();
    let told = chain(&link.ready().await.unwrap_err());
    let port = sentinel.port;
    assert_eq!(
        told,
        format!(
            "redis backend could not decide: the sentinel 127.0.0.1:{port} does not know a master `shp`"
        )
    );
}
