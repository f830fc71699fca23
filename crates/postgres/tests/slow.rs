//! The store in PostgreSQL: whatever happens to a server or on the way to it, every call is answered
//! by its deadline, no token is taken twice, and the store recovers by itself when the fault is over.
//!
//! The tests wait for calls that reach their deadline of 50 ms, and for servers that restart.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};
use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_postgres::{Postgres, PostgresBuilder};
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::{
    COUNTED, DEADLINE, Log, Lost, RECOVERY, Told, Traffic, wait_until,
};

fn at(server: &Server) -> PostgresBuilder {
    Postgres::at(server.settings()).deadline(DEADLINE)
}

/// The store as it is in the end, asked with a deadline that no server exceeds.
fn held(server: &Server) -> Postgres {
    at(server).deadline(RECOVERY).connect_lazily().unwrap()
}

/// Traffic to a server that answers, in a schema that is there already.
async fn traffic(server: &Server, tasks: u64) -> Traffic {
    at(server).deadline(Duration::from_secs(60)).connect().await.unwrap();
    let traffic = Traffic::begin(at(server).connect_lazily().unwrap(), tasks);
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

async fn client(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.settings(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_crashes_and_comes_back_with_full_buckets() {
    let server = Server::start();
    let traffic = traffic(&server, 64).await;
    let crashing = Instant::now();
    server.crash();
    traffic.fails().await;
    server.restart();
    let started = Instant::now();
    let log = recovers(traffic).await;
    log.is_what(held(&server), Lost::Everything(crashing, started)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarts_in_order_and_loses_nothing() {
    let server = Server::start();
    let traffic = traffic(&server, 16).await;
    for _ in 0..3 {
        server.shut_down();
        server.restart();
        traffic.goes_on().await;
    }
    recovers(traffic).await.is_what(held(&server), Lost::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_hangs() {
    let server = Server::start();
    let traffic = traffic(&server, 64).await;
    server.stop();
    // Long enough for connections to be given up.
    traffic.is_answered(40).await;
    server.resume();
    let log = recovers(traffic).await;
    assert!(log.count(Told::Late) >= 64, "calls past their deadline fail as late");
    log.is_what(held(&server), Lost::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_terminated_in_the_middle_of_calls() {
    let server = Server::start();
    let (traffic, admin) = (traffic(&server, 32).await, client(&server).await);
    for _ in 0..10 {
        let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'tollgate'";
        admin.query(all, &[]).await.unwrap();
        traffic.goes_on().await;
    }
    recovers(traffic).await.is_what(held(&server), Lost::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_else_holds_a_lock_beyond_the_deadline() {
    let server = Server::start();
    let (traffic, admin) = (traffic(&server, 16).await, client(&server).await);
    for _ in 0..2 {
        admin.batch_execute("BEGIN; LOCK TABLE tollgate.buckets").await.unwrap();
        traffic.fails().await;
        traffic.is_answered(10).await;
        admin.batch_execute("ROLLBACK").await.unwrap();
        traffic.goes_on().await;
    }
    let log = recovers(traffic).await;
    assert!(log.count(Told::Late) >= 16);
    log.is_what(held(&server), Lost::Nothing).await;
}

/// A snapshot that is held open keeps old versions of rows from being removed: decisions get slower,
/// and stay right.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_is_held_open() {
    let server = Server::start();
    let (traffic, admin) = (traffic(&server, 16).await, client(&server).await);
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tollgate.buckets";
    admin.batch_execute(begin).await.unwrap();
    traffic.is_answered(200).await;
    admin.batch_execute("ROLLBACK").await.unwrap();
    recovers(traffic).await.is_what(held(&server), Lost::Nothing).await;
}

/// All places of the server are taken by others when the store has to connect.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_more_connections_is_an_outage() {
    let server = Server::start();
    let (traffic, admin) = (traffic(&server, 8).await, client(&server).await);
    admin.batch_execute("ALTER ROLE app CONNECTION LIMIT 1").await.unwrap();
    let role =
        "CREATE ROLE guest LOGIN CONNECTION LIMIT 0; GRANT USAGE ON SCHEMA tollgate TO guest";
    admin.batch_execute(role).await.unwrap();
    let guest = server.settings().replace("user=app", "user=guest");
    // Long enough for a machine that does much else: a call that this process is late with is no outage.
    let store = Postgres::at(guest).deadline(Duration::from_secs(2)).connect_lazily().unwrap();
    let limiter = tollgate::RateLimiter::new(store);
    let told = limiter.limit(&COUNTED).await.unwrap_err();
    assert!(told.is_unavailable() && told.is_outage(), "{told:?}");
    recovers(traffic).await.is_what(held(&server), Lost::Nothing).await;
}

/// The application holds its only connection for longer than a sweep may take, and wants it again
/// at once. So the connection is never idle, and still the sweep has its turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_has_its_turn_of_a_pool_that_is_never_idle() {
    const HELD: Duration = Duration::from_millis(5_500);
    let server = Server::start();
    let config = server.settings().parse().unwrap();
    let pool = Pool::builder(Manager::new(config, NoTls)).max_size(1).build().unwrap();
    let one = NonZeroUsize::MIN;
    let store = Postgres::with_pool(pool.clone()).connections(one).deadline(HELD * 4);
    let limiter = RateLimiter::new(store.connect().await.unwrap());
    let admin = client(&server).await;
    let dead = "INSERT INTO tollgate.buckets SELECT int4send(i), 0, 0, 1, 1, 1, 1 \
                FROM generate_series(1, 5000) i";
    admin.batch_execute(dead).await.unwrap();
    // Names 1,000 buckets. A second one is what a sweep is due for.
    let shards = Limit::new("shards", Quota::token_bucket(1_000, DAY).shards(1_000));
    limiter.peek(&shards).await.unwrap();
    let theirs = pool.clone();
    let application = tokio::spawn(async move {
        // Shorter at first: the request below waits for it, and the sweep for the next time.
        let mut long = HELD / 10;
        loop {
            let held = theirs.get().await.unwrap();
            sleep(long).await;
            drop(held);
            long = HELD;
        }
    });
    wait_until("the application has it", async || pool.status().available == 0).await;
    limiter.peek(&shards).await.unwrap();
    wait_until("the sweep has removed dead rows", async || {
        let left = admin.query_one("SELECT count(*) FROM tollgate.buckets", &[]).await.unwrap();
        left.get::<_, i64>(0) < 5_000
    })
    .await;
    assert!(!application.is_finished());
    application.abort();
}
