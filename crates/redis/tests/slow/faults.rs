//! Whatever happens to a server or on the way to it, every call is answered by its deadline, no
//! token is taken twice, and the store recovers by itself when the fault is over.
//!
//! The tests wait for calls that reach their deadline of 50 ms, and for connections that are given up
//! after a second.

use std::time::{Duration, Instant};

use tollgate_redis::{Redis, RedisBuilder};
use tollgate_testing::redis::{Mode, Proxy, Server};
use tollgate_testing::traffic::{DEADLINE, Log, Lost, RECOVERY, SILENT, Told, Traffic};

fn at(url: String) -> RedisBuilder {
    Redis::at(url).deadline(DEADLINE)
}

/// The store as it is in the end, asked with a deadline that no server exceeds.
fn held(server: &Server) -> Redis {
    at(server.url()).deadline(RECOVERY).connect_lazily().unwrap()
}

/// Traffic to a server that answers.
async fn traffic(url: String, tasks: u64) -> Traffic {
    let traffic = Traffic::begin(at(url).connect_lazily().unwrap(), tasks);
    traffic.goes_on().await;
    traffic
}

/// Lets the traffic go on after a fault, and holds that all calls were answered in time.
async fn recovers(traffic: Traffic) -> Log {
    traffic.goes_on().await;
    let log = traffic.end().await;
    log.all_in_time();
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_killed_and_starts_empty() {
    let server = Server::start();
    let traffic = traffic(server.url(), 64).await;
    server.kill();
    let killed = Instant::now();
    traffic.fails().await;
    traffic.is_told("refused").await;
    server.restart();
    let started = Instant::now();
    let log = recovers(traffic).await;
    log.errors_name(&["lost the connection to 127.0.0.1", "cannot connect to 127.0.0.1"]);
    log.is_what(held(&server), Lost::Everything(killed, started)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarts_empty_at_once() {
    let server = Server::start();
    let traffic = traffic(server.url(), 16).await;
    for _ in 0..3 {
        server.restart();
        traffic.goes_on().await;
    }
    let restarting = Instant::now();
    server.restart();
    let restarted = Instant::now();
    let log = recovers(traffic).await;
    log.errors_name(&["lost the connection to 127.0.0.1", "cannot connect to 127.0.0.1"]);
    log.is_what(held(&server), Lost::Everything(restarting, restarted)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_hangs() {
    let server = Server::start();
    let traffic = traffic(server.url(), 64).await;
    server.stop();
    // Long enough for the connection to be given up, and for attempts to reconnect to be given up
    // too.
    traffic.is_answered(40).await;
    server.resume();
    let log = recovers(traffic).await;
    assert!(log.count(Told::Late) >= 64, "calls past their deadline fail as late");
    log.errors_name(&["no connection to 127.0.0.1", "lost the connection to 127.0.0.1"]);
    log.is_what(held(&server), Lost::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_hangs_for_a_moment() {
    let server = Server::start();
    let traffic = traffic(server.url(), 64).await;
    for _ in 0..5 {
        server.stop();
        traffic.fails().await;
        server.resume();
        traffic.goes_on().await;
    }
    let log = recovers(traffic).await;
    log.errors_name(&["lost the connection to 127.0.0.1", "no connection to 127.0.0.1"]);
    log.is_what(held(&server), Lost::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_flushed() {
    let server = Server::start();
    let traffic = traffic(server.url(), 16).await;
    let flushing = Instant::now();
    server.flush_all();
    let flushed = Instant::now();
    let log = recovers(traffic).await;
    // No call sees it.
    log.errors_name(&SILENT);
    log.is_what(held(&server), Lost::Everything(flushing, flushed)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_flushed() {
    let server = Server::start();
    let traffic = traffic(server.url(), 16).await;
    for _ in 0..20 {
        server.script_flush();
        traffic.goes_on().await;
    }
    let log = recovers(traffic).await;
    // No call sees it.
    log.errors_name(&SILENT);
    log.is_what(held(&server), Lost::Nothing).await;
}

/// Traffic through a proxy, during this fault and afterwards.
async fn by_way_of(mode: Mode) -> Log {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    let traffic = traffic(proxy.url(), 32).await;
    for _ in 0..2 {
        proxy.set(mode);
        traffic.is_answered(20).await;
        proxy.set(Mode::Pass);
        traffic.goes_on().await;
    }
    let log = recovers(traffic).await;
    log.is_what(held(&server), Lost::Nothing).await;
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_falls_silent() {
    let log = by_way_of(Mode::Silent).await;
    assert!(log.count(Told::Late) >= 32);
    log.errors_name(&[
        "no connection to 127.0.0.1",
        "lost the connection to 127.0.0.1",
        "cannot connect to",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_loses_answers() {
    let log = by_way_of(Mode::LoseAnswers).await;
    assert!(log.count(Told::Late) >= 32);
    log.errors_name(&[
        "no connection to 127.0.0.1",
        "lost the connection to 127.0.0.1",
        "cannot connect to",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_cuts_answers_in_half() {
    let log = by_way_of(Mode::Cut).await;
    assert!(log.count(Told::Failed) + log.count(Told::Late) >= 32);
    log.errors_name(&[
        "no connection to 127.0.0.1",
        "lost the connection to 127.0.0.1",
        "cannot connect to",
        "hung up",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_refuses_connections() {
    let log = by_way_of(Mode::Refuse).await;
    assert!(log.count(Told::Failed) >= 32);
    log.errors_name(&[
        "lost the connection to 127.0.0.1",
        "cannot connect to 127.0.0.1",
        "hung up",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_delays_answers_around_the_deadline() {
    let delay = Mode::Delay(Duration::from_millis(40), Duration::from_millis(60));
    let log = by_way_of(delay).await;
    assert!(log.count(Told::Late) > 0);
    log.errors_name(&SILENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_comes_later_than_its_callers() {
    for mode in [Mode::Silent, Mode::Refuse, Mode::LoseAnswers, Mode::Cut] {
        let server = Server::start();
        let proxy = Proxy::before(server.port());
        proxy.set(mode);
        let traffic = Traffic::begin(at(proxy.url()).connect_lazily().unwrap(), 16);
        traffic.is_answered(20).await;
        proxy.set(Mode::Pass);
        let log = recovers(traffic).await;
        assert!(log.count(Told::Failed) + log.count(Told::Late) >= 16 * 20, "{mode:?}");
        log.is_what(held(&server), Lost::Nothing).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_a_server_that_hangs_disturbs_no_other() {
    let server = Server::start();
    let traffic = Traffic::with_fickle(at(server.url()).connect_lazily().unwrap(), 64);
    for hangs in [2, 40, 2, 2] {
        traffic.goes_on().await;
        server.stop();
        traffic.is_answered(hangs).await;
        server.resume();
    }
    traffic.goes_on().await;
    let log = traffic.end().await;
    log.all_in_time().errors_name(&SILENT);
    assert!(log.count(Told::Gone) > 0 && log.count(Told::Late) > 0);
    log.is_what(held(&server), Lost::Nothing).await;
}
