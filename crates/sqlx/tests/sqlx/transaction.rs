//! Decisions that come and go with a transaction of `sqlx`.

use std::time::Duration;

use sqlx::{Connection as _, Executor as _, PgConnection};
use tollgate::{DAY, Limit, OnFailure, Quota, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_sqlx::Sqlx;
use tollgate_testing::dropped_after;
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::chain;

static ORDERS: Limit = Limit::new("orders", Quota::token_bucket(10, DAY));
static DAILY: Limit = Limit::new("daily", Quota::fixed_window(2, DAY));

/// A store in a schema of its own, a limiter on it, and a connection of the application.
async fn set_up() -> (Postgres, RateLimiter, PgConnection) {
    let server = Server::shared();
    let store = Postgres::at(server.settings()).schema(server.unused_name());
    let store = store.deadline(Duration::from_secs(60)).connect().await.unwrap();
    (store.clone(), RateLimiter::new(store), connect().await)
}

async fn connect() -> PgConnection {
    let port = Server::shared().port();
    PgConnection::connect(&format!("postgres://app@127.0.0.1:{port}/postgres")).await.unwrap()
}

async fn left(limiter: &RateLimiter) -> u64 {
    limiter.peek(&ORDERS).key("alice").await.unwrap().remaining()
}

#[tokio::test]
async fn a_commit_keeps_the_decision_and_a_rollback_undoes_it() {
    let (store, limiter, mut connection) = set_up().await;
    connection.execute("CREATE TEMPORARY TABLE work (item text)").await.unwrap();
    let (mut held, mut items) = (10, 0);
    for commits in [false, true, false, true] {
        let mut transaction = connection.begin().await.unwrap();
        transaction.execute("INSERT INTO work VALUES ('umbrella')").await.unwrap();
        let take = async |store| {
            let limiter = limiter.with_backend(store);
            limiter.limit(&ORDERS).key("alice").cost(3).await.map(|permit| permit.remaining())
        };
        assert_eq!(
            store.in_transaction(Sqlx::new(&mut transaction), take).await.unwrap(),
            held - 3
        );
        if commits {
            transaction.commit().await.unwrap();
            (held, items) = (held - 3, items + 1);
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!(left(&limiter).await, held);
        let stored = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM work");
        assert_eq!(stored.fetch_one(&mut connection).await.unwrap(), items);
    }
}

/// A transaction that is dropped is rolled back when its connection is used again.
#[tokio::test]
async fn a_dropped_transaction_gives_its_tokens_back() {
    let (store, limiter, mut connection) = set_up().await;
    let mut transaction = connection.begin().await.unwrap();
    let take = async |store| {
        let limiter = limiter.with_backend(store);
        limiter.limit(&ORDERS).key("alice").cost(10).await.map(drop)
    };
    store.in_transaction(Sqlx::new(&mut transaction), take).await.unwrap();
    drop(transaction);
    connection.ping().await.unwrap();
    assert_eq!(left(&limiter).await, 10);
}

#[tokio::test]
async fn a_connection_decides_several_times_all_or_nothing() {
    let (store, limiter, mut connection) = set_up().await;
    connection.execute("BEGIN").await.unwrap();
    store
        .in_transaction(Sqlx::new(&mut connection), async |store| {
            let limiter = limiter.with_backend(store);
            for left in [9, 8] {
                let both = limiter.limit(&ORDERS).key("alice").and(&DAILY).key("alice");
                let permit = both.await.unwrap();
                assert_eq!(permit.snapshots().next().unwrap().remaining(), left);
            }
            let third = limiter.limit(&ORDERS).key("alice").and(&DAILY).key("alice").await;
            assert!(third.unwrap_err().is_refused());
            let permit = limiter.limit(&ORDERS).key("alice").cost(5).await.unwrap();
            assert_eq!(permit.settle(1).await.unwrap().remaining(), 7);
        })
        .await;
    connection.execute("COMMIT").await.unwrap();
    assert_eq!(left(&limiter).await, 7);
}

/// What a request handler spawns has to be `Send`.
#[tokio::test]
async fn a_task_can_decide_in_a_transaction() {
    let (store, limiter, mut connection) = set_up().await;
    let shared = limiter.clone();
    let task = tokio::spawn(async move {
        let mut transaction = connection.begin().await.unwrap();
        let take = async |store| {
            let limiter = shared.with_backend(store);
            limiter.limit(&ORDERS).key("alice").await.map(drop)
        };
        store.in_transaction(Sqlx::new(&mut transaction), take).await.unwrap();
        transaction.commit().await.unwrap();
    });
    task.await.unwrap();
    assert_eq!(left(&limiter).await, 9);
}

/// `Admit` let the work go on in a transaction that the server had aborted.
#[tokio::test]
async fn a_failure_reaches_the_caller_although_the_limiter_admits_in_an_outage() {
    let (store, limiter, mut connection) = set_up().await;
    let limiter = limiter.on_failure(OnFailure::Admit);
    let mut other = connect().await;
    let mut holding = other.begin().await.unwrap();
    let take = async |store| {
        let limiter = limiter.with_backend(store);
        limiter.limit(&ORDERS).key("alice").await.map(drop)
    };
    store.in_transaction(Sqlx::new(&mut holding), take).await.unwrap();

    let mut transaction = connection.begin().await.unwrap();
    transaction.execute("SET LOCAL lock_timeout = '1ms'").await.unwrap();
    let told = store.in_transaction(Sqlx::new(&mut transaction), take).await.unwrap_err();
    assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
    let text = chain(&told);
    assert!(text.contains("inside the transaction of the caller (roll it back)"), "{text}");
    // A second one says so as well.
    let told = store.in_transaction(Sqlx::new(&mut transaction), take).await.unwrap_err();
    let text = chain(&told);
    assert!(text.contains("current transaction is aborted"), "{text}");
    transaction.rollback().await.unwrap();
    holding.rollback().await.unwrap();
    assert_eq!(left(&limiter).await, 10);
}

#[tokio::test]
async fn errors_of_the_server_mean_the_same_as_with_tokio_postgres() {
    let server = Server::shared();
    let lazy = Postgres::at(server.settings()).schema(server.unused_name());
    let store = lazy.connect_lazily().unwrap();
    let limiter = RateLimiter::new(store.clone());
    let mut connection = connect().await;
    let mut transaction = connection.begin().await.unwrap();
    let take = async |store| {
        let limiter = limiter.with_backend(store);
        limiter.limit(&ORDERS).key("alice").await.map(drop)
    };
    let told = chain(&store.in_transaction(Sqlx::new(&mut transaction), take).await.unwrap_err());
    assert!(told.contains("the schema of the store is missing"), "{told}");
}

#[tokio::test]
async fn a_decision_in_a_transaction_of_sqlx_that_is_dropped_comes_back_with_the_rollback() {
    let (store, limiter, mut connection) = set_up().await;
    for polls in 0.. {
        let mut transaction = connection.begin().await.unwrap();
        let take = async |store| {
            let limiter = limiter.with_backend(store);
            let permit = limiter.limit(&ORDERS).key("alice").cost(3).await?;
            permit.settle(1).await.map(drop)
        };
        let done =
            dropped_after(store.in_transaction(Sqlx::new(&mut transaction), take), polls).await;
        // The connection is as it should be.
        let one = sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&mut *transaction).await;
        assert_eq!(one.unwrap(), 1, "{polls}");
        match done {
            None => transaction.rollback().await.unwrap(),
            Some(taken) => {
                taken.unwrap();
                transaction.commit().await.unwrap();
                // Where the machine stalls, both answers may be there at the second poll.
                assert!(polls > 0, "the test has never dropped it");
                assert_eq!(left(&limiter).await, 9);
                return;
            }
        }
        assert_eq!(left(&limiter).await, 10, "{polls}");
    }
}
