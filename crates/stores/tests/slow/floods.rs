//! So many requests of one client that this process answers none in time. That is no outage of the
//! store, or the flood would be let through by `OnFailure::Admit`. A store that is late is one.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{RateLimited, RateLimiter};
use tollgate_embedded::Embedded;
use tollgate_leasing::Leasing;
use tollgate_postgres::Postgres;
use tollgate_redis::Redis;
use tollgate_testing::traffic::{COUNTED, FLOODED, flood, wait_until};
use tollgate_testing::{postgres, redis};

const LASTS: Duration = Duration::from_secs(2);

/// 67,127 of 129,649 requests were let through.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_key_of_redis_is_no_outage() {
    let server = redis::Server::start();
    let redis = Redis::at(server.url()).connect().await.unwrap();
    flood(RateLimiter::new(redis), LASTS, |_| 0).await.passed_at_most(30);
}

/// The queue of each slot was short, however many slots waited: 144,490 of 149,675 were let through.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_keys_over_all_slots_of_a_redis_cluster_is_no_outage() {
    let cluster = redis::Cluster::start(3);
    let redis = Redis::cluster(cluster.urls()).connect().await.unwrap();
    flood(RateLimiter::new(redis), LASTS, |nth| nth).await.passed_at_most(60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_key_of_postgres_is_no_outage() {
    let server = postgres::Server::start();
    let store = Postgres::at(server.settings()).connect().await.unwrap();
    flood(RateLimiter::new(store), LASTS, |_| 0).await.passed_at_most(30);
}

/// Callers that wait for a lot wait by a timer of the wrapper.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_leased_key_is_no_outage() {
    let server = redis::Server::start();
    let redis = Redis::at(server.url()).connect().await.unwrap();
    flood(RateLimiter::new(Leasing::new(redis).lease(&FLOODED)), LASTS, |_| 0)
        .await
        .passed_at_most(30);
}

/// A commit of thousands of keys takes longer than callers wait. 64,424 requests were let through.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_new_keys_of_a_file_is_no_outage() {
    let path = std::env::temp_dir().join(format!("tollgate-flood-{}.db", std::process::id()));
    let store = Embedded::at(&path).deadline(Duration::from_millis(20)).open().unwrap();
    let told = flood(RateLimiter::new(store), LASTS, |nth| nth).await;
    std::fs::remove_file(&path).unwrap();
    told.passed_at_most(30);
}

/// A server that is a little too slow is an outage for nearly all, however many calls are under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_server_that_answers_late_is_an_outage() {
    let server = redis::Server::start();
    let proxy = redis::Proxy::before(server.port());
    let limiter = RateLimiter::new(Redis::at(proxy.url()).connect().await.unwrap());
    wait_until("it decides", async || limiter.limit(&COUNTED).await.is_ok()).await;
    for delay in [65, 200].map(Duration::from_millis) {
        proxy.set(redis::Mode::Delay(delay, delay));
        let mut asks = JoinSet::new();
        for _ in 0..200 {
            let limiter = limiter.clone();
            asks.spawn(async move { limiter.limit(&COUNTED).await.map(drop) });
            sleep(Duration::from_millis(5)).await;
        }
        let told = asks.join_all().await.into_iter().filter_map(Result::err);
        let (outages, others): (Vec<_>, Vec<_>) = told.partition(RateLimited::is_outage);
        let (outages, others) = (outages.len(), others.len());
        // A machine that stalls makes some callers late by itself.
        assert!(outages >= 120, "{delay:?}: {outages}, {others}");
    }
}

/// So many callers make each other late, and then a server that answers late tells nothing. A server that
/// is silent does.
#[tokio::test(flavor = "multi_thread")]
async fn of_more_callers_than_calls_take_only_a_silent_server_is_an_outage() {
    let server = redis::Server::start();
    let proxy = redis::Proxy::before(server.port());
    let limiter = RateLimiter::new(Redis::at(proxy.url()).connect().await.unwrap());
    wait_until("it decides", async || limiter.limit(&COUNTED).await.is_ok()).await;
    let outages = async || {
        let mut asks = JoinSet::new();
        for _ in 0..600 {
            let limiter = limiter.clone();
            asks.spawn(async move { limiter.limit(&COUNTED).await.map(drop) });
        }
        let told = asks.join_all().await;
        told.iter().filter(|one| one.as_ref().is_err_and(RateLimited::is_outage)).count()
    };
    let delay = Duration::from_millis(65);
    proxy.set(redis::Mode::Delay(delay, delay));
    for nth in 0..4 {
        // The last of a round are few.
        let outages = outages().await;
        assert!(outages <= 60, "round {nth}: {outages}");
    }
    proxy.set(redis::Mode::Silent);
    wait_until("silence is an outage", async || outages().await > 0).await;
}
