//! The master that sentinels name, before and after a failover.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::Value;
use tokio::time::{Instant, sleep};

use super::super::{AddressMap, Call, ConnectOptions, Link, Servers};
use super::process::{Server, VirtualAddress, free_port, until};
use super::single::{COUNT, WITHIN, chain};

fn link(sentinels: &[&Server]) -> Link {
    link_by(&sentinels.iter().map(|sentinel| sentinel.url()).collect::<Vec<_>>())
}

fn link_by(urls: &[String]) -> Link {
    let servers = Servers::sentinel(urls, "shop", None, &ConnectOptions::default()).unwrap();
    Link::open(servers, COUNT, WITHIN).unwrap()
}

async fn masters() -> [Server; 2] {
    let masters = [Server::start(&[]), Server::start(&[])];
    for master in &masters {
        master.up().await;
    }
    masters
}

async fn sentinel(master: &Server, epoch: u64) -> Server {
    Server::start_sentinel_at("127.0.0.1", master.port, epoch).await
}

/// Where a sentinel is that is the last to answer. If all that answer first agree, and are the majority,
/// it is not waited for.
async fn late(sentinel: &Server) -> String {
    VirtualAddress::of(sentinel, Duration::from_millis(150)).await.url()
}

/// The calls that a server has counted.
async fn count(server: &Server) -> Option<u32> {
    server.ask(&["GET", "count"]).await.unwrap()
}

async fn call(link: &Link) -> Result<Value, tollgate::backend::BackendError> {
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
    new.up().await;
    let sentinel = sentinel(&new, 1).await;
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

/// Regression: the first sentinel that answered decided, also if it was cut off from the others and
/// had missed a failover. So in a partition the former master was charged.
#[tokio::test]
async fn of_two_masters_the_later_one_is_asked() {
    let [old, new] = masters().await;
    let behind = sentinel(&old, 1).await;
    let current = sentinel(&new, 2).await;
    let link = link_by(&[behind.url(), late(&current).await]);
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    assert_eq!((count(&old).await, count(&new).await), (None, Some(1)));
}

#[tokio::test]
async fn of_two_masters_of_one_epoch_the_majority_decides() {
    let [few, many] = masters().await;
    let sentinels = [sentinel(&few, 3).await, sentinel(&many, 3).await, sentinel(&many, 3).await];
    let urls = [sentinels[0].url(), late(&sentinels[1]).await, late(&sentinels[2]).await];
    let link = link_by(&urls);
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    assert_eq!((count(&few).await, count(&many).await), (None, Some(1)));
}

/// The later master would not see what the former one decides.
#[tokio::test]
async fn the_former_master_is_not_asked_although_the_later_one_is_down() {
    let [old, mut new] = masters().await;
    let [behind, current] = [sentinel(&old, 1).await, sentinel(&new, 2).await];
    let port = new.port;
    new.kill();
    let link = link(&[&behind, &current]);
    let told = chain(&call(&link).await.unwrap_err());
    assert!(told.contains(&format!("cannot connect to 127.0.0.1:{port}")), "{told}");
    assert_eq!(count(&old).await, None);
}

/// As in containers, where the sentinels see other addresses.
#[tokio::test]
async fn the_master_is_reached_where_the_map_says() {
    let [master, _] = masters().await;
    let sentinel = Server::start_sentinel_at("203.0.113.7", 6379, 1).await;
    let port = master.port;
    let map = AddressMap::new(move |host, named| {
        assert_eq!((host, named), ("203.0.113.7", 6379));
        Some(("127.0.0.1".to_owned(), port))
    });
    let options = ConnectOptions { map, ..ConnectOptions::default() };
    let servers = Servers::sentinel(&[sentinel.url()], "shop", None, &options).unwrap();
    let link = Link::open(servers, COUNT, WITHIN).unwrap();
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    assert_eq!(count(&master).await, Some(1));
}

#[tokio::test]
async fn sentinels_that_are_down_do_not_decide() {
    let [one, two] = masters().await;
    let sentinels = [sentinel(&two, 3).await, sentinel(&one, 2).await, sentinel(&one, 2).await];
    let [mut current, behind, also_behind] = sentinels;
    let urls = [current.url(), late(&behind).await, late(&also_behind).await];
    assert_eq!(call(&link_by(&urls)).await.unwrap(), Value::Int(1));
    assert_eq!(count(&two).await, Some(1));
    current.kill();
    assert_eq!(call(&link_by(&urls)).await.unwrap(), Value::Int(1));
    assert_eq!(count(&one).await, Some(1));
}

#[tokio::test]
async fn the_majority_decides_where_a_login_may_not_ask_for_the_failover() {
    let [few, many] = masters().await;
    let sentinels = [sentinel(&few, 9).await, sentinel(&many, 3).await, sentinel(&many, 3).await];
    let urls = [sentinels[0].url(), late(&sentinels[1]).await, late(&sentinels[2]).await];
    for (right, counts) in [("+ping", (None, Some(1))), ("+sentinel|master", (Some(1), Some(1)))] {
        for sentinel in &sentinels {
            let rights = ["on", ">hush", "+ping", "+sentinel|get-master-addr-by-name", right];
            let user = [&["ACL", "SETUSER", "asker"], &rights[..]].concat();
            assert_eq!(sentinel.ask::<Value>(&user).await.unwrap(), Value::Okay);
        }
        let (login, options) = (Some(("asker", "hush")), ConnectOptions::default());
        let servers = Servers::sentinel(&urls, "shop", login, &options).unwrap();
        let link = Link::open(servers, COUNT, WITHIN).unwrap();
        assert_eq!(call(&link).await.unwrap(), Value::Int(1));
        assert_eq!((count(&few).await, count(&many).await), counts);
    }
}

/// Regression: as long as the former master kept the connection and called itself one, it was asked.
/// It waits for the two seconds until the sentinels are asked again.
#[tokio::test]
async fn a_master_that_does_not_know_that_it_was_replaced_is_left() {
    let [old, new] = masters().await;
    let before = [sentinel(&old, 1).await, sentinel(&old, 1).await, sentinel(&old, 1).await];
    // By a later failover of which the others have not heard, and by a majority.
    for (epoch, replaced) in [(2, 1), (1, 2)] {
        let after = [sentinel(&new, epoch).await, sentinel(&new, epoch).await];
        let [one, two] = [at(&before[1]).await, at(&before[2]).await];
        let link = link_by(&[before[0].url(), one.url(), two.url()]);
        call(&link).await.unwrap();
        let counted = count(&new).await;
        for (address, sentinel) in [one, two].iter().zip(&after).take(replaced) {
            address.lead_to(sentinel);
        }
        until("the new master is asked", async || {
            call(&link).await.unwrap();
            count(&new).await > counted
        })
        .await;
        let counted = count(&old).await;
        call(&link).await.unwrap();
        assert_eq!(count(&old).await, counted);
    }
}

/// It waits for the two seconds until the sentinels are asked again.
#[tokio::test]
async fn a_sentinel_that_is_behind_is_not_followed_while_the_others_are_silent() {
    let [old, new] = masters().await;
    let [behind, current] = [sentinel(&old, 1).await, sentinel(&new, 2).await];
    let address = at(&current).await;
    let down = format!("redis://127.0.0.1:{}", free_port());
    let link = link_by(&[address.url(), down.clone(), down]);
    call(&link).await.unwrap();
    address.lead_to(&behind);
    call_until_checked(&link, &behind).await;
    assert_eq!(count(&old).await, None);
}

/// Regression: one sentinel that named a server that answers nothing took the service down.
#[tokio::test]
async fn a_connection_is_kept_until_a_later_master_has_answered() {
    let [master, silent] = masters().await;
    let [one, two] = [sentinel(&master, 4).await, sentinel(&master, 4).await];
    let (address, odd) = (at(&one).await, sentinel(&silent, 5).await);
    silent.signal("-STOP");
    let link = link_by(&[one.url(), two.url(), address.url()]);
    call(&link).await.unwrap();
    let before = connections(&master).await;
    address.lead_to(&odd);
    call_until_checked(&link, &odd).await;
    // The other one in between is that of the check, and the last is that of the test.
    assert!(connections(&master).await <= before + 2);
}

/// Regression: no connection was made.
#[tokio::test]
async fn the_master_of_the_majority_is_asked_if_a_later_one_is_none() {
    let [master, silent] = masters().await;
    let [replica, mut down] = masters().await;
    let port = master.port.to_string();
    let _: Value = replica.ask(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
    let [one, two] = [sentinel(&master, 4).await, sentinel(&master, 4).await];
    silent.signal("-STOP");
    down.kill();
    for (nth, later) in (1..).zip([&silent, &replica, &down]) {
        let odd = sentinel(later, 5).await;
        let link = link_by(&[late(&one).await, late(&two).await, odd.url()]);
        assert_eq!(call(&link).await.unwrap(), Value::Int(nth));
        assert_eq!(count(&master).await, Some(nth.try_into().unwrap()));
    }
}

/// Regression: as two of three sentinels have not heard of the failover yet, the third had only to be
/// slow once.
#[tokio::test]
async fn a_majority_that_is_behind_is_not_followed_while_the_others_are_silent() {
    let [old, new] = masters().await;
    let behind = [sentinel(&old, 4).await, sentinel(&old, 4).await];
    let [current, silent] = [sentinel(&new, 5).await, sentinel(&new, 5).await];
    silent.signal("-STOP");
    let addresses = [at(&current).await, at(&current).await, at(&current).await];
    let link = link_by(&addresses.each_ref().map(VirtualAddress::url));
    call(&link).await.unwrap();
    for (address, now) in addresses.iter().zip([&behind[0], &behind[1], &silent]) {
        address.lead_to(now);
    }
    call_until_checked(&link, &behind[0]).await;
    assert_eq!(count(&old).await, None);
}

#[tokio::test]
async fn a_majority_that_is_behind_does_not_decide_before_the_others() {
    let [old, new] = masters().await;
    let behind = [sentinel(&old, 4).await, sentinel(&old, 4).await];
    let current = sentinel(&new, 5).await;
    let addresses = [at(&current).await, at(&current).await];
    let link = link_by(&[addresses[0].url(), addresses[1].url(), late(&current).await]);
    call(&link).await.unwrap();
    for (address, now) in addresses.iter().zip(&behind) {
        address.lead_to(now);
    }
    let _: Value = new.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    until("there is another connection", async || call(&link).await.is_ok()).await;
    assert_eq!(count(&old).await, None);
}

/// Regression: the connection was replaced every two seconds.
#[tokio::test]
async fn a_map_with_two_addresses_for_one_server_does_not_replace_the_connection() {
    let [master, _] = masters().await;
    let sentinel = sentinel(&master, 1).await;
    let asked = AtomicBool::new(false);
    let map = AddressMap::new(move |_, port| {
        let host = if asked.fetch_not(Ordering::Relaxed) { "localhost" } else { "127.0.0.1" };
        Some((host.to_owned(), port))
    });
    let options = ConnectOptions { map, ..ConnectOptions::default() };
    let servers = Servers::sentinel(&[sentinel.url()], "shop", None, &options).unwrap();
    let link = Link::open(servers, COUNT, WITHIN).unwrap();
    call(&link).await.unwrap();
    let before = connections(&master).await;
    call_until_checked(&link, &sentinel).await;
    assert_eq!(connections(&master).await, before + 1);
}

/// Makes calls until this sentinel was asked again, for which it waits two seconds, and a second more.
/// In that time the connection would have been replaced.
async fn call_until_checked(link: &Link, sentinel: &Server) {
    let (before, mut own) = (connections(sentinel).await, 0);
    until("the sentinel was asked again", async || {
        call(link).await.unwrap();
        own += 1;
        connections(sentinel).await > before + own
    })
    .await;
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        call(link).await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
    call(link).await.unwrap();
}

/// The connections that a server has had.
async fn connections(server: &Server) -> u32 {
    let info: String = server.ask(&["INFO", "stats"]).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().parse().unwrap()
}

/// An address that another sentinel can take over.
async fn at(sentinel: &Server) -> VirtualAddress {
    VirtualAddress::of(sentinel, Duration::ZERO).await
}
