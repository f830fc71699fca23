//! Refusals and looks write nothing.

use std::time::Duration;

use super::Database;
use super::encode::Batch;
use tollgate::algebra::{Bucket, Terms};
use tollgate::backend::{Change, Key};
use tollgate::{HOUR, Quota};
use tollgate_conformance::history::START;
use tollgate_conformance::history::{Step, TestAdjustment, TestBucket, TestCharge};

fn target(key: &str) -> TestBucket {
    TestBucket { limit: "a", key: Key::from(key), shard: 0 }
}

fn charge(key: &str, quota: &Quota, tokens: u64) -> TestCharge {
    let bucket = Bucket::new(quota).unwrap();
    let units = bucket.units(tokens).unwrap();
    let (other, terms) = (None, Terms::AT_ONCE);
    TestCharge { target: target(key), other, bucket, units, terms, takes: true }
}

fn refund(key: &str, quota: &Quota) -> TestAdjustment {
    let bucket = Bucket::new(quota).unwrap();
    TestAdjustment { target: target(key), bucket, change: Change::Refund { units: 1 } }
}

/// Decides batches in a transaction, and returns whether that has an id by then.
async fn has_id(database: &Database, batches: &[Batch]) -> bool {
    database.run("BEGIN").await.unwrap();
    for batch in batches {
        database.decide(batch).await.unwrap();
    }
    let text = "SELECT count(pg_current_xact_id_if_assigned())";
    let ids = database.number(text).await;
    database.run("COMMIT").await.unwrap();
    ids == 1
}

/// A transaction without an id has written nothing, and has locked no row.
#[tokio::test]
async fn refusals_and_looks_write_nothing_and_lock_no_row() {
    let database = Database::with_test_clock().await;
    let quota = Quota::token_bucket(10, HOUR);
    let take = |key, tokens| Step::Apply(vec![charge(key, &quota, tokens)]);
    let look = |key, tokens| TestCharge { takes: false, ..charge(key, &quota, tokens) };
    let batch = |steps: &[Step]| Batch::new(steps).at(START);
    database.decide(&batch(&[take("alice", 10)])).await.unwrap();
    let quiet = [
        batch(&[take("alice", 1)]),
        batch(&[take("bob", 11)]),
        batch(&[take("bob", 0)]),
        batch(&[take("alice", 1), take("alice", 2), take("bob", 11)]),
        batch(&[Step::Apply(vec![look("alice", 1)]), Step::Apply(vec![look("bob", 1)])]),
        batch(&[Step::Apply(vec![charge("bob", &quota, 1), charge("alice", &quota, 1)])]),
        batch(&[Step::Apply(vec![TestCharge { other: Some(1), ..charge("bob", &quota, 21) }])]),
        batch(&[Step::Adjust(vec![refund("bob", &quota)])]),
        batch(&[Step::Reset(vec![target("bob")])]),
    ];
    let rows = database.rows().await;
    assert!(!has_id(&database, &quiet).await);
    assert_eq!(database.rows().await, rows);
    // The check can fail.
    assert!(has_id(&database, &[batch(&[take("bob", 1)])]).await);
}

#[tokio::test]
async fn a_decision_with_the_servers_clock_returns_its_time() {
    let database = Database::with_server_clock().await;
    let step = Step::Apply(vec![charge("alice", &Quota::token_bucket(10, HOUR), 1)]);
    let text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    for steps in [vec![step.clone()], vec![step.clone(), step]] {
        let before = database.number(text).await;
        let (now, _) = database.decide(&Batch::new(&steps)).await.unwrap();
        let after = database.number(text).await;
        assert!((before..=after).contains(&now.as_micros()), "{before} {now:?} {after}");
    }
}

/// Locked rows of other transactions hold up neither refusals nor looks, nor charges on other rows.
#[tokio::test]
async fn refusals_and_looks_wait_for_no_row() {
    let database = Database::with_test_clock().await;
    let quota = Quota::token_bucket(10, HOUR);
    let take = |key, tokens| Step::Apply(vec![charge(key, &quota, tokens)]);
    let batch = |steps: &[Step]| Batch::new(steps).at(START);
    database.decide(&batch(&[take("alice", 10), take("bob", 1)])).await.unwrap();
    let other = database.again().await;
    other
        .run("BEGIN; SELECT FROM tollgate.buckets WHERE key LIKE 'a:Key(alice)%' FOR UPDATE")
        .await
        .unwrap();
    let look = TestCharge { takes: false, ..charge("alice", &quota, 1) };
    for steps in [
        vec![take("alice", 1)],
        vec![Step::Apply(vec![look])],
        vec![take("alice", 1), take("bob", 1)],
    ] {
        let batch = batch(&steps);
        let decided = database.decide(&batch);
        tokio::time::timeout(Duration::from_secs(60), decided).await.unwrap().unwrap();
    }
    other.run("ROLLBACK").await.unwrap();
}
