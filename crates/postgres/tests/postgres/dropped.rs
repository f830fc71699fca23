//! Futures that are dropped at each of their awaits.

use std::time::Duration;

use tokio_postgres::NoTls;
use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_testing::dropped_after;
use tollgate_testing::postgres::Server;

static ORDERS: Limit = Limit::new("orders", Quota::token_bucket(10, DAY));

const LONG: Duration = Duration::from_secs(60);

async fn set_up() -> (Postgres, RateLimiter) {
    let server = Server::shared();
    let store = Postgres::at(server.settings()).schema(server.unused_name()).deadline(LONG);
    let store = store.connect().await.unwrap();
    (store.clone(), RateLimiter::new(store))
}

async fn left(limiter: &RateLimiter, key: &str) -> u64 {
    limiter.peek(&ORDERS).key(key).await.unwrap().remaining()
}

/// A start that is given up leaves no schema in part, and no lock that holds the next one up.
#[tokio::test]
async fn a_start_that_is_dropped_leaves_the_schema_whole_or_absent() {
    let server = Server::shared();
    let schema = server.unused_name();
    let mut found = Vec::new();
    for polls in 0.. {
        let at = || Postgres::at(server.settings()).schema(&schema).deadline(LONG);
        let done = dropped_after(at().connect(), polls).await.is_some();
        let functions =
            "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace";
        found.push(server.query(&format!("{functions} WHERE nspname = '{schema}'")));
        if done {
            assert!(polls > 5, "the test has dropped it only {polls} times");
            break;
        }
    }
    let whole = found.last().unwrap();
    assert!(found.iter().all(|count| count == "0" || count == whole), "{found:?}");
    let store = Postgres::at(server.settings()).schema(&schema).migrate(false).deadline(LONG);
    let limiter = RateLimiter::new(store.connect().await.unwrap());
    assert_eq!(limiter.limit(&ORDERS).await.unwrap().remaining(), 9);
}

#[tokio::test]
async fn a_decision_in_a_transaction_that_is_dropped_comes_back_with_the_rollback() {
    let (store, limiter) = set_up().await;
    let (mut client, connection) =
        tokio_postgres::connect(&Server::shared().settings(), NoTls).await.unwrap();
    tokio::spawn(connection);
    for polls in 0.. {
        let transaction = client.transaction().await.unwrap();
        let take = async |store| {
            let limiter = limiter.with_backend(store);
            let permit = limiter.limit(&ORDERS).key("alice").cost(3).await?;
            permit.settle(1).await.map(drop)
        };
        let done = dropped_after(store.in_transaction(&transaction, take), polls).await;
        // The connection is as it should be.
        let one: i32 = transaction.query_one("SELECT 1", &[]).await.unwrap().get(0);
        assert_eq!(one, 1);
        match done {
            None => transaction.rollback().await.unwrap(),
            Some(taken) => {
                taken.unwrap();
                transaction.commit().await.unwrap();
                // Where the machine stalls, both answers may be there at the second poll.
                assert!(polls > 0, "the test has never dropped it");
                assert_eq!(left(&limiter, "alice").await, 9);
                return;
            }
        }
        assert_eq!(left(&limiter, "alice").await, 10, "{polls}");
    }
}

/// What is dropped may be taken once, and what is not is taken once.
#[tokio::test]
async fn a_decision_that_is_dropped_takes_its_tokens_once_at_most() {
    let (_, limiter) = set_up().await;
    let mut dones = 0;
    for polls in 0..4_usize {
        let key = format!("k{polls}");
        let call = async { limiter.limit(&ORDERS).key(key.as_str()).cost(4).await };
        let done = dropped_after(call, polls).await;
        dones += usize::from(done.is_some());
        // Later calls wait for what is still on its way.
        let took = 10 - left(&limiter, &key).await;
        match done {
            Some(permit) => assert_eq!((permit.unwrap().remaining(), took), (6, 4)),
            None => assert!(took == 0 || took == 4, "{took}"),
        }
    }
    assert!(dones > 0);
}
