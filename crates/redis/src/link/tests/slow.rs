//! What is given up after its time, and what is not. These tests wait in real time, and a machine that
//! stalls may fail them.

use std::time::Duration;

use ::redis::{ProtocolVersion, RedisConnectionInfo, Value};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use super::super::address::{Address, Endpoint};
use super::super::server::Server as Place;
use super::super::{Call, ConnectOptions, Link, Route, Servers};
use super::process::{Server, VirtualAddress, free_port, until};
use super::single::{COUNT, WITHIN, call, chain, link, until_told};

/// It waits for the second that an answer may take, and for the one that an attempt to connect may.
#[tokio::test]
async fn a_server_that_hangs_loses_its_calls_and_then_its_connection() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    server.signal("-STOP");
    let (first, second) = tokio::join!(call(&link), call(&link));
    // The timeout of one call ends the connection, and with it the other call.
    let [first, second] = [first.unwrap_err(), second.unwrap_err()];
    assert!(first.is_timeout() || second.is_timeout(), "{first:?}, {second:?}");
    // The kernel still accepts connections, but the server does not answer: that attempt times out
    // as well.
    let third = timeout(Duration::from_secs(20), call(&link)).await.unwrap();
    assert!(third.is_err());
    server.signal("-CONT");
    until("the link has recovered", async || call(&link).await.is_ok()).await;
    // No call was sent twice: the server has carried out the first call, the two that hung, and
    // those that have succeeded since.
    assert!((2..=4).contains(&server.ask::<u32>(&["GET", "count"]).await.unwrap()));
}

/// Regression: each retry of a call made a new connection, some hundred times a second. It waits for
/// ten deadlines of 50 ms.
#[tokio::test]
async fn retries_do_not_storm_a_replica_with_connections() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    let unused = free_port().to_string();
    let _: Value = server.ask(&["REPLICAOF", "127.0.0.1", &unused]).await.unwrap();
    let begun = Instant::now();
    for _ in 0..10 {
        let soon = Instant::now() + WITHIN;
        assert!(link.call(Call::new(&["count"], b"", soon)).await.is_err());
    }
    let most = begun.elapsed().as_millis() / 100 + 1;
    let Route::Single(node) = &link.0.route else { panic!("one server") };
    let last = node.connection(Instant::now() + Duration::from_secs(30)).await.unwrap();
    // The first connection was made before.
    assert!(u128::from(last.serial()) <= most + 1, "{} in {most} tenths", last.serial());
}

/// Regression: an answer after more than a second was given up, even if the deadline was later. It
/// waits for such an answer.
#[tokio::test]
async fn a_call_with_a_deadline_above_a_second_is_not_cut_off() {
    let server = Server::start(&[]);
    server.up().await;
    let servers = Servers::single(&server.url(), &ConnectOptions::default()).unwrap();
    let link = Link::open(servers, COUNT, Duration::from_secs(30)).unwrap();
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    let _: Value = server.ask(&["CLIENT", "PAUSE", "1500"]).await.unwrap();
    assert_eq!(call(&link).await.unwrap(), Value::Int(2));
}

/// It waits for the second that an attempt to connect may take.
#[tokio::test]
async fn no_call_waits_for_a_connection_longer_than_its_deadline() {
    // The kernel accepts connections, and no server answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let link = link(&format!("redis://127.0.0.1:{port}"));
    let soon = Instant::now() + WITHIN;
    let told = chain(&link.call(Call::new(&["count"], b"", soon)).await.unwrap_err());
    assert_eq!(told, "redis backend could not decide within 50 ms");
    // A call with a longer deadline reports the cause.
    assert_eq!(
        chain(&call(&link).await.unwrap_err()),
        format!("redis backend could not decide: no connection to 127.0.0.1:{port} within 1 s")
    );
    drop(listener);
}

/// Regression: the connection was kept as long as it lived, although another server had taken over
/// the address. It waits for the second after which such a connection is given up.
#[tokio::test]
async fn a_server_behind_a_virtual_address_that_cannot_answer_is_left_after_a_second() {
    let [stale, sound] = [Server::start(&["--replica-serve-stale-data", "no"]), Server::start(&[])];
    stale.up().await;
    sound.up().await;
    let address = VirtualAddress::of(&stale, Duration::ZERO).await;
    let link = link(&address.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    let unused = free_port().to_string();
    let _: Value = stale.ask(&["REPLICAOF", "127.0.0.1", &unused]).await.unwrap();
    until_told(&link, "MASTERDOWN").await;
    address.lead_to(&sound);
    let late = Instant::now() + Duration::from_secs(10);
    assert_eq!(link.call(Call::new(&["count"], b"", late)).await.unwrap(), Value::Int(1));
    assert_eq!(sound.ask::<u32>(&["GET", "count"]).await.unwrap(), 1);
}

/// Regression: the first address that connected was taken, whatever its server answered.
#[tokio::test]
async fn of_the_addresses_of_a_name_one_with_a_server_that_can_answer_is_taken() {
    let sound = Server::start(&[]);
    let unused = free_port().to_string();
    let stale =
        Server::start(&["--replicaof", "127.0.0.1", &unused, "--replica-serve-stale-data", "no"]);
    sound.up().await;
    stale.up().await;
    let address = Address::Tcp { host: "shop".to_owned(), port: 6379, tls: None };
    let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let place = Place::new(address, login);
    let server = &sound;
    let [stale, sound] =
        [&stale, &sound].map(|server| Endpoint::Tcp(([127, 0, 0, 1], server.port).into()));
    let dial = async |endpoints: &[&Endpoint]| {
        let endpoints = endpoints.iter().map(|&endpoint| endpoint.clone()).collect();
        let wire = place.dial_any(endpoints).await.unwrap();
        wire.send(&::redis::cmd("DBSIZE"), 0).await
    };
    // Before version 7, a server without its master answers `PING`, which is all that is asked here.
    let about: String = server.ask(&["INFO", "server"]).await.unwrap();
    if !about.contains("redis_version:6.") {
        assert_eq!(dial(&[&stale, &sound]).await.unwrap(), Value::Int(0));
        assert_eq!(dial(&[&sound, &stale]).await.unwrap(), Value::Int(0));
    }
    // Alone it is taken, and calls are told why they fail.
    assert_eq!(dial(&[&stale]).await.unwrap_err().code(), Some("MASTERDOWN"));
}
