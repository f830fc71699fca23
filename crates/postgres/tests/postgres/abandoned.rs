//! Statements whose callers have left: the server does not go on with them.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use tokio::time::sleep;
use tokio_postgres::{Client, Config, NoTls};
use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::wait_until;

static CLIENTS: Limit = Limit::new("clients", Quota::token_bucket(10, DAY));

async fn client(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.settings(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A pool of the application, with four connections.
fn pool(server: &Server) -> Pool {
    let mut config: Config = server.settings().parse().unwrap();
    config.application_name("theirs");
    Pool::builder(Manager::new(config, NoTls)).max_size(4).build().unwrap()
}

/// How many processes of the server are there for the pool.
fn processes(server: &Server, which: &str) -> usize {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'theirs'";
    server.query(&format!("{query} AND {which}")).parse().unwrap()
}

/// Each second, four more processes stood there, until the server took no more connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_locked_leaves_no_processes_behind() {
    let server = Server::start();
    let store = Postgres::with_pool(pool(&server)).connect().await.unwrap();
    let (limiter, admin) = (RateLimiter::new(store), client(&server).await);
    admin.batch_execute("BEGIN; LOCK TABLE tollgate.buckets").await.unwrap();
    let (begun, mut most, mut asks) = (Instant::now(), 0, Vec::new());
    while begun.elapsed() < Duration::from_secs(3) {
        for _ in 0..8 {
            let (limiter, key) = (limiter.clone(), asks.len().to_string());
            asks.push(tokio::spawn(async move {
                let told = limiter.limit(&CLIENTS).key(key).await.unwrap_err();
                assert!(told.is_unavailable(), "{told:?}");
            }));
        }
        sleep(Duration::from_millis(50)).await;
        most = most.max(processes(&server, "true"));
    }
    for ask in asks {
        ask.await.unwrap();
    }
    assert!(most <= 6, "{most} processes for a pool of 4");
    admin.batch_execute("ROLLBACK").await.unwrap();
    wait_until("the store decides", async || limiter.limit(&CLIENTS).key("new").await.is_ok())
        .await;
}

/// A list waits for the table as long as the server lets it, and its caller does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_caller_has_left_is_cancelled() {
    let server = Server::start();
    let store = Postgres::with_pool(pool(&server)).connect().await.unwrap();
    let (limiter, admin) = (RateLimiter::new(store), client(&server).await);
    admin.batch_execute("BEGIN; LOCK TABLE tollgate.buckets").await.unwrap();
    let waits = "wait_event_type = 'Lock'";
    let list = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.debtors(&CLIENTS).await.map(drop) }
    });
    wait_until("the list waits", async || processes(&server, waits) > 0).await;
    list.await.unwrap().unwrap_err();
    wait_until("the server has ended it", async || processes(&server, waits) == 0).await;
}

/// The rollback waited for the row as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_waits_for_a_row_can_be_rolled_back_at_the_deadline() {
    let server = Server::shared();
    let store = Postgres::at(server.settings()).schema(server.unused_name());
    let store = store.deadline(Duration::from_millis(500)).connect().await.unwrap();
    let limiter = RateLimiter::new(store.clone());
    let take = async |store| {
        let limiter = limiter.with_backend(store);
        limiter.limit(&CLIENTS).key("alice").await.map(drop)
    };
    let (mut one, mut other) = (client(server).await, client(server).await);
    let holding = one.transaction().await.unwrap();
    store.in_transaction(&holding, take).await.unwrap();
    let waiting = other.transaction().await.unwrap();
    let told = store.in_transaction(&waiting, take).await.unwrap_err();
    assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
    tokio::time::timeout(Duration::from_secs(20), waiting.rollback()).await.unwrap().unwrap();
    holding.rollback().await.unwrap();
}
