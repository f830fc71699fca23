//! A server that is not there yet, one whose clock jumps, one whose disk is full, and a table that others
//! have changed.

use std::error::Error as _;
use std::num::NonZeroUsize;

use futures_util::future::join_all;
use tokio_postgres::{Client, NoTls};
use tollgate::{DAY, Limit, MINUTE, OnFailure, Quota, RateLimiter};
use tollgate_postgres::{Postgres, PostgresBuilder};
use tollgate_testing::cases::times;
use tollgate_testing::clock::ServerClock;
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::{COUNTED, wait_until};

fn at(server: &Server) -> PostgresBuilder {
    Postgres::at(server.settings()).deadline(MINUTE)
}

async fn client(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.settings(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_store_is_made_before_its_server_is_there() {
    let server = Server::start();
    drop(at(&server).connect().await.unwrap());
    server.shut_down();
    let limiter = RateLimiter::new(at(&server).connect_lazily().unwrap());
    let told = limiter.limit(&COUNTED).await.unwrap_err();
    assert!(told.is_unavailable() && told.is_outage(), "{told:?}");
    server.restart();
    wait_until("the store connects", async || limiter.limit(&COUNTED).await.is_ok()).await;
}

#[tokio::test]
async fn a_clock_that_jumps_fails_no_decision_and_each_jump_ahead_gives_its_refill() {
    static DAILY: Limit = Limit::new("daily", Quota::token_bucket(24, DAY));
    let server = Server::with_clock(ServerClock::new());
    let limiter = RateLimiter::new(at(&server).connect().await.unwrap());
    let seconds = || server.query("SELECT floor(extract(epoch FROM clock_timestamp()))::bigint");
    let told = || seconds().parse::<i64>().unwrap();
    let (begun, mut admitted) = (told(), 0);
    for ahead in [0, 3_600, -3_600, 0] {
        server.set_clock(ahead);
        assert!((0..600).contains(&(told() - begun - ahead)), "{ahead}");
        for _ in 0..30 {
            match limiter.limit(&DAILY).await {
                Ok(_) => admitted += 1,
                Err(error) => assert!(error.is_refused(), "{error}"),
            }
        }
    }
    // All that was full, and an hour for each jump ahead: the time of the first lies more than an hour
    // ahead of the second, and was read as now.
    assert_eq!(admitted, 24 + 2);
}

/// The limit on the size of files stands for a full disk. New buckets are not stored then, so their
/// requests fail; clients without tokens are refused as ever, those whose rows are there are admitted,
/// and nothing has to be repaired.
#[tokio::test]
async fn a_disk_that_is_full_fails_what_must_be_stored_and_admits_nothing_else() {
    static DAILY: Limit = Limit::new("daily", Quota::token_bucket(2, DAY));
    let server = Server::start();
    let admin = client(&server).await;
    let limiter = RateLimiter::new(at(&server).connect().await.unwrap());
    for _ in 0..2 {
        limiter.limit(&DAILY).key("alice").await.unwrap();
    }
    limiter.limit(&COUNTED).key("bob").await.unwrap();
    // The table has more than 2 MB, and the log of the server keeps to files of 1 MB.
    let filler = "INSERT INTO tollgate.buckets SELECT int8send(i), 0, 0, 1, 1, 4e15::bigint, \
                  1 FROM generate_series(1, 16000) i";
    admin.batch_execute(filler).await.unwrap();
    server.limit_files(Some(2 << 20));
    // Pages that are there have room for some.
    let mut stored = 0;
    let told = loop {
        match limiter.limit(&DAILY).key(format!("new {stored}")).await {
            Ok(permit) => drop(permit),
            Err(told) => break told,
        }
        stored += 1;
        assert!(stored < 10_000, "the table still grows");
    };
    assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
    let open = limiter.clone().on_failure(OnFailure::Admit);
    for limiter in [&limiter, &open] {
        let told = limiter.limit(&DAILY).key(format!("new {stored}")).await.unwrap_err();
        assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
        let told = limiter.limit(&DAILY).key("alice").await.unwrap_err();
        assert!(told.is_refused(), "{told:?}");
        assert_eq!(limiter.peek(&DAILY).key(format!("new {stored}")).await.unwrap().remaining(), 2);
    }
    // A bucket that has its row goes on, also in calls with new ones.
    let limiter = &limiter;
    let ask = async |key: String| limiter.limit(&COUNTED).key(key).await;
    for nth in 0..20 {
        let keys = (0..60).map(|other| format!("new {nth} {other}")).chain(["bob".to_owned()]);
        let told = join_all(keys.map(ask)).await;
        assert!(told.last().unwrap().is_ok() && told.iter().any(Result::is_err), "{nth}: {told:?}");
    }
    server.limit_files(None);
    let permit = limiter.limit(&DAILY).key(format!("new {stored}")).await.unwrap();
    assert_eq!(permit.remaining(), 1);
}

/// The functions of a connection kept the type of a column that they had seen for a moment, and failed
/// for good. An error of a constraint quoted the row, and with it the key.
#[tokio::test]
async fn a_table_that_others_have_changed_is_used_again_once_it_is_mended() {
    let server = Server::shared();
    let schema = server.unused_name();
    let store = at(server).schema(&schema).connections(NonZeroUsize::MIN).connect().await.unwrap();
    let limiter = RateLimiter::new(store);
    let run = |change: &str| server.query(&format!("SET search_path = {schema}; {change}"));
    for (breaks, mends, said) in [
        (
            "ALTER TABLE buckets ALTER COLUMN value TYPE integer USING 1000",
            "ALTER TABLE buckets ALTER COLUMN value TYPE bigint",
            "type of parameter",
        ),
        (
            "TRUNCATE buckets; ALTER TABLE buckets ADD COLUMN note text NOT NULL",
            "ALTER TABLE buckets DROP COLUMN note",
            "null value in column \"note\"",
        ),
    ] {
        let mut told = None;
        // A connection that a busy machine has replaced meanwhile has seen nothing yet.
        for _ in 0..20 {
            for _ in 0..8 {
                drop(limiter.limit(&COUNTED).key("alice").await);
            }
            run(breaks);
            for key in ["alice", "alice", "bob", "carol", "alice"] {
                let answer = limiter.limit(&COUNTED).key(key).await;
                let source = answer.err().map(|error| error.source().unwrap().to_string());
                told = told.or(source.filter(|source| source.contains(said)));
            }
            if told.is_some() {
                break;
            }
            run(mends);
        }
        let told = told.expect(breaks);
        assert!(told.contains("objects of another program"), "{told}");
        assert!(!told.contains("DETAIL"), "{told}");
        run(mends);
        wait_until("the table is used", async || {
            limiter.limit(&COUNTED).key("alice").await.is_ok()
        })
        .await;
    }
}

/// The error said to connect once, which did nothing.
#[tokio::test]
async fn a_table_that_was_dropped_is_made_by_the_next_node_that_connects() {
    let server = Server::shared();
    let schema = server.unused_name();
    let connect = async || RateLimiter::new(at(server).schema(&schema).connect().await.unwrap());
    let old = connect().await;
    old.limit(&COUNTED).await.unwrap();
    server.query(&format!("DROP TABLE {schema}.buckets CASCADE"));
    let told = old.limit(&COUNTED).await.unwrap_err().source().unwrap().to_string();
    assert!(told.contains("connect once as a role that may make it"), "{told}");
    let new = connect().await;
    for limiter in [&new, &old, &new] {
        limiter.limit(&COUNTED).await.unwrap();
    }
}

/// A primary that comes back as a standby, in a pool that does not look for the primary. It cannot
/// read an unlogged table.
#[tokio::test]
async fn a_primary_that_has_become_a_standby_is_an_outage_until_it_is_promoted() {
    let server = Server::start();
    let config: tokio_postgres::Config = server.settings().parse().unwrap();
    let pool = deadpool_postgres::Pool::builder(deadpool_postgres::Manager::new(config, NoTls));
    let store = Postgres::with_pool(pool.max_size(2).build().unwrap()).deadline(MINUTE);
    let limiter = RateLimiter::new(store.connect().await.unwrap());
    limiter.limit(&COUNTED).await.unwrap();
    // A program that reads nothing may end before the server has written.
    server.query("COPY (SELECT 1) TO PROGRAM 'cat > standby.signal'");
    server.shut_down();
    server.restart();
    for _ in 0..4 {
        let told = limiter.limit(&COUNTED).await.unwrap_err();
        assert!(told.is_unavailable() && told.is_outage(), "{told:?}");
    }
    assert_eq!(server.query("SELECT pg_promote()"), "t");
    wait_until("the store decides", async || limiter.limit(&COUNTED).await.is_ok()).await;
}

/// Made-up keys of a long period made the table grow without a bound. Four calls at a time leave no
/// connection of this pool idle.
#[tokio::test(flavor = "multi_thread")]
async fn made_up_keys_do_not_grow_the_table_beyond_its_bound() {
    const BOUND: usize = 3_000;
    let server = Server::start();
    let limit = Limit::new("slow", Quota::token_bucket(1_000, DAY * 365));
    let config = server.settings().parse::<tokio_postgres::Config>().unwrap();
    let manager = deadpool_postgres::Manager::new(config, NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(4).build().unwrap();
    let store = Postgres::with_pool(pool).max_keys(BOUND).deadline(MINUTE).connect().await.unwrap();
    let limiter = RateLimiter::new(store);
    limiter.block(&limit, DAY).key("blocked").await.unwrap();
    limiter.penalize(&limit, 1_500).key("debtor").await.unwrap();
    let tasks = (0..256_u64).map(|task| {
        let (limiter, limit) = (limiter.clone(), limit.clone());
        tokio::spawn(async move {
            for nth in 0..times(120, 40) {
                limiter.limit(&limit).key(task * 1_000 + nth).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    // The statistics of the server, by which rows are counted, are a second or so late.
    wait_until("few are left", async || {
        let again = (0..1_600_u64).map(|key| limiter.limit(&limit).key(key).into_future());
        join_all(again).await.into_iter().for_each(|outcome| drop(outcome.unwrap()));
        let rows: usize = server.query("SELECT count(*) FROM tollgate.buckets").parse().unwrap();
        rows <= BOUND * 3 / 2
    })
    .await;
    for key in ["blocked", "debtor"] {
        assert!(limiter.limit(&limit).key(key).await.unwrap_err().is_refused(), "{key}");
    }
}
