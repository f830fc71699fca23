//! Decisions that come and go with a transaction of the application.

use std::time::Duration;

use tokio_postgres::{Client, IsolationLevel, NoTls};
use tollgate::{DAY, Limit, OnFailure, Quota, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::chain;

static ORDERS: Limit = Limit::new("orders", Quota::token_bucket(10, DAY));
static DAILY: Limit = Limit::new("daily", Quota::fixed_window(2, DAY));

/// A store in a schema of its own, a limiter on it, and a connection of the application.
async fn set_up() -> (Postgres, RateLimiter, Client) {
    let server = Server::shared();
    let store = Postgres::at(server.settings()).schema(server.unused_name());
    let store = store.deadline(Duration::from_secs(60)).connect().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&server.settings(), NoTls).await.unwrap();
    tokio::spawn(connection);
    (store.clone(), RateLimiter::new(store), client)
}

async fn left(limiter: &RateLimiter) -> u64 {
    limiter.peek(&ORDERS).key("alice").await.unwrap().remaining()
}

#[tokio::test]
async fn a_commit_keeps_the_decision_and_a_rollback_undoes_it() {
    let (store, limiter, mut client) = set_up().await;
    let mut held = 10;
    for commits in [false, true, false, true] {
        let transaction = client.transaction().await.unwrap();
        let take = async |store| {
            let limiter = limiter.with_backend(store);
            limiter.limit(&ORDERS).key("alice").cost(3).await.map(|permit| permit.remaining())
        };
        assert_eq!(store.in_transaction(&transaction, take).await.unwrap(), held - 3);
        if commits {
            transaction.commit().await.unwrap();
            held -= 3;
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!(left(&limiter).await, held);
    }
}

#[tokio::test]
async fn several_calls_of_one_transaction_see_each_other_and_are_all_or_nothing() {
    let (store, limiter, mut client) = set_up().await;
    let transaction = client.transaction().await.unwrap();
    store
        .in_transaction(&transaction, async |store| {
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
    transaction.commit().await.unwrap();
    assert_eq!(left(&limiter).await, 7);
}

#[tokio::test]
async fn other_requests_for_the_key_wait_for_the_transaction_and_count_it() {
    let (store, limiter, mut client) = set_up().await;
    let transaction = client.transaction().await.unwrap();
    let take = async |store| {
        let limiter = limiter.with_backend(store);
        limiter.limit(&ORDERS).key("alice").cost(8).await.map(drop)
    };
    store.in_transaction(&transaction, take).await.unwrap();
    let other = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.limit(&ORDERS).key("alice").cost(8).await.map(drop) }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while Server::shared().query(waits) == "0" {
        tokio::task::yield_now().await;
    }
    transaction.commit().await.unwrap();
    assert!(other.await.unwrap().unwrap_err().is_refused());
    assert_eq!(left(&limiter).await, 2);
}

/// A transaction that has seen the bucket before others charged it must not charge what it saw.
#[tokio::test]
async fn a_stricter_isolation_fails_or_counts_but_never_forgets() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let (store, limiter, mut client) = set_up().await;
        limiter.limit(&ORDERS).key("alice").await.unwrap();
        let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        // The snapshot of the transaction.
        transaction.query_one("SELECT 1", &[]).await.unwrap();
        limiter.limit(&ORDERS).key("alice").cost(8).await.unwrap();
        let take = async |store| {
            let limiter = limiter.with_backend(store);
            limiter.limit(&ORDERS).key("alice").cost(8).await.map(drop)
        };
        let told = store.in_transaction(&transaction, take).await.unwrap_err();
        assert!(told.is_unavailable(), "{told:?}");
        transaction.rollback().await.unwrap();
        assert_eq!(left(&limiter).await, 1);
    }
}

#[tokio::test]
async fn a_permit_that_outlives_the_transaction_cannot_be_settled() {
    let (store, limiter, mut client) = set_up().await;
    let transaction = client.transaction().await.unwrap();
    let permit = store
        .in_transaction(&transaction, async |store| {
            let limiter = limiter.with_backend(store);
            limiter.limit(&ORDERS).key("alice").await.unwrap().into_owned()
        })
        .await;
    transaction.commit().await.unwrap();
    let told = chain(&permit.settle(0).await.unwrap_err());
    assert!(told.contains("the transaction of this permit is over"), "{told}");
    assert_eq!(left(&limiter).await, 9);
}

/// `Admit` let the work go on in a transaction that the server had aborted.
#[tokio::test]
async fn a_failure_reaches_the_caller_although_the_limiter_admits_in_an_outage() {
    let (store, limiter, mut client) = set_up().await;
    let limiter = limiter.on_failure(OnFailure::Admit);
    let (_, _, mut other) = set_up().await;
    let take = async |store| {
        let limiter = limiter.with_backend(store);
        limiter.limit(&ORDERS).key("alice").await.map(drop)
    };
    let holding = other.transaction().await.unwrap();
    store.in_transaction(&holding, take).await.unwrap();

    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("SET LOCAL lock_timeout = '1ms'").await.unwrap();
    let told = store.in_transaction(&transaction, take).await.unwrap_err();
    assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
    let text = chain(&told);
    assert!(text.contains("in time inside the transaction of the caller (roll it back)"), "{text}");
    // A second one says so as well.
    let text = chain(&store.in_transaction(&transaction, take).await.unwrap_err());
    assert!(text.contains("current transaction is aborted"), "{text}");
    transaction.rollback().await.unwrap();
    holding.rollback().await.unwrap();
    assert_eq!(left(&limiter).await, 10);
}

/// The same through a layer: the request is answered with 503, and does not run.
#[tokio::test]
async fn a_layer_does_not_admit_in_a_transaction_that_has_failed() {
    use std::convert::Infallible;

    use http::{Request, Response};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    let (store, limiter, mut client) = set_up().await;
    let limiter = limiter.on_failure(OnFailure::Admit);
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("SELECT 1 / 0").await.unwrap_err();
    let status = store
        .in_transaction(&transaction, async |store| {
            let layer = limiter.with_backend(store).layer(&ORDERS);
            let inner = service_fn(async |_| Ok::<_, Infallible>(Response::new(())));
            let response = layer.layer(inner).oneshot(Request::new(())).await;
            response.unwrap().status()
        })
        .await;
    assert_eq!(status, 503);
}

/// A client could pass a limit with `Admit` by a slow request: while its transaction held the row,
/// all of its other requests were late, which counted as an outage.
#[tokio::test]
async fn a_row_that_a_transaction_holds_is_no_outage() {
    let server = Server::shared();
    let settings = format!("{} options='-c lock_timeout=5ms'", server.settings());
    let store = Postgres::at(settings).schema(server.unused_name());
    let store = store.deadline(Duration::from_secs(10)).connect().await.unwrap();
    let limiter = RateLimiter::new(store.clone()).on_failure(OnFailure::Admit);
    let (client, connection) = tokio_postgres::connect(&server.settings(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut client = client;
    let holding = client.transaction().await.unwrap();
    let take = async |store| {
        let limiter = limiter.with_backend(store);
        limiter.limit(&ORDERS).key("alice").cost(8).await.map(drop)
    };
    store.in_transaction(&holding, take).await.unwrap();
    let held = limiter.limit(&ORDERS).key("alice").cost(1).await.unwrap_err();
    assert!(held.is_unavailable() && !held.is_outage(), "{held:?}");
    let told = chain(&held);
    let says = "as another transaction held a lock on its buckets (keep transactions that decide";
    assert!(told.contains(says), "{told}");
    holding.commit().await.unwrap();
    assert_eq!(left(&limiter).await, 2);
}
