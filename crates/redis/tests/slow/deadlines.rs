//! Calls that reach their deadline at a server that is silent: the tests wait for that, and for a
//! connection that is given up after a second.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tollgate::backend::{BackendError, CircuitBreaker, DenyCache, Memory};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimited, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Cluster, Mode, Proxy, Server};
use tollgate_testing::traffic::{COUNTED, chain, wait_until};

static DAILY: Limit = Limit::new("daily", Quota::token_bucket(10, DAY));

const LONG: Duration = Duration::from_secs(60);

/// A limiter that has not asked for anything yet.
fn limiter(url: String, deadline: Duration) -> RateLimiter {
    RateLimiter::new(Redis::at(url).deadline(deadline).connect_lazily().unwrap())
}

async fn ask(limiter: &RateLimiter) -> Result<(), RateLimited> {
    limiter.limit(&COUNTED).await.map(drop)
}

#[track_caller]
fn cause(error: &RateLimited) -> &BackendError {
    error.source().unwrap().downcast_ref().unwrap()
}

#[tokio::test]
async fn a_server_is_silent() {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    proxy.set(Mode::Silent);
    let error = Redis::connect(proxy.url()).await.unwrap_err();
    let text = format!("no connection to 127.0.0.1:{} within 1 s", proxy.port());
    assert_eq!(error.to_string(), format!("redis backend could not decide: {text}"));

    let error = ask(&limiter(proxy.url(), Duration::from_millis(50))).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_timeout());
    assert_eq!(
        chain(&error),
        "limit `counted` could not be decided < redis backend could not decide within 50 ms"
    );
}

#[tokio::test]
async fn a_server_hangs() {
    let server = Server::start();
    let limiter = limiter(server.url(), Duration::from_micros(12_500));
    wait_until("connected", async || ask(&limiter).await.is_ok()).await;
    server.stop();
    // A test that has no processor for that long is told that it is overloaded.
    let told =
        "limit `counted` could not be decided < redis backend could not decide within 12.5ms";
    wait_until(told, async || {
        let error = ask(&limiter).await.unwrap_err();
        error.is_timeout() && chain(&error) == told
    })
    .await;
}

#[tokio::test]
async fn a_list_keeps_the_deadline_and_trips_no_breaker() {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    let redis = Redis::at(proxy.url()).deadline(Duration::from_secs(1));
    let breaker = CircuitBreaker::new(redis.connect().await.unwrap()).failures(1);
    let breaker = std::sync::Arc::new(breaker);
    let limiter = RateLimiter::new(DenyCache::new(std::sync::Arc::clone(&breaker)));
    limiter.block(&DAILY, HOUR).key("mallory").await.unwrap();
    proxy.set(Mode::Silent);
    let begun = Instant::now();
    let error = limiter.debtors(&DAILY).await.unwrap_err();
    assert!(error.is_timeout() && begun.elapsed() < LONG, "{error:?}");
    assert!(breaker.is_closed());
    // A decision does.
    assert!(limiter.limit(&DAILY).key("alice").await.unwrap_err().is_outage());
    let error = limiter.debtors(&DAILY).await.unwrap_err();
    assert!(cause(&error).is_circuit_open() && error.retry_after().is_some(), "{error:?}");
    // What falls back on memory asks the store alone.
    let fallback = tollgate::backend::Fallback::new(breaker, Memory::new());
    assert!(RateLimiter::new(fallback).debtors(&DAILY).await.unwrap_err().is_outage());
}

/// The node that has sent the call on was asked whether it is late. It was not, so this process seemed to
/// be.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_a_call_is_redirected_to_hangs() {
    let cluster = Cluster::start(3);
    let redis = Redis::cluster(cluster.urls()).deadline(Duration::from_millis(300));
    let limiter = RateLimiter::new(redis.connect().await.unwrap());
    let slot = cluster.slot_of("tollgate:counted:new");
    let from = cluster.node_of_slot(slot);
    let to = (from + 1) % 3;
    wait_until("all nodes are connected to", async || {
        let mut all = true;
        for key in 0..32 {
            all &= limiter.limit(&COUNTED).key(key).await.is_ok();
        }
        all
    })
    .await;
    cluster.begin_move(slot, from, to);
    cluster.node(to).stop();
    // Others are answered by that node all the while.
    let others = limiter.clone();
    let is_there = |key: &String| {
        cluster.node_of_slot(cluster.slot_of(format!("tollgate:counted:{key}"))) == from
    };
    let key = (0..).map(|nth| format!("o{nth}")).find(is_there).unwrap();
    let others = tokio::spawn(async move {
        while others.limit(&COUNTED).key(&*key).await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    });
    let mut told = Vec::new();
    // Meanwhile the connection is kept.
    for _ in 0..3 {
        told.push(limiter.limit(&COUNTED).key("new").await.unwrap_err());
    }
    cluster.node(to).resume();
    others.abort();
    assert!(told.iter().any(RateLimited::is_outage), "{told:?}");
}
