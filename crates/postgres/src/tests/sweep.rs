//! Sweeps remove buckets that equal absent ones, and no others.

use std::time::Duration;

use tollgate_testing::postgres::Server;
use tollgate_testing::redis::until;

use super::Database;
use super::SchemaName;
use super::encode::Batch;
use tollgate::algebra::{Bucket, Terms};
use tollgate::backend::Key;
use tollgate::clock::Timestamp;
use tollgate::{HOUR, MINUTE, Quota, SECOND};
use tollgate_conformance::history::START;
use tollgate_conformance::history::{Step, TestBucket, TestCharge};

/// Removes what may be removed, from all pages. Returns how many rows that were.
async fn sweep(database: &Database) -> i64 {
    database.number("SELECT removed FROM tollgate.sweep(0, 1000000, 1000000)").await
}

fn take(key: u64, quota: &Quota, tokens: u64) -> Step {
    let bucket = Bucket::new(quota).unwrap();
    let target = TestBucket { limit: "a", key: Key::from(key), shard: 0 };
    let units = bucket.units(tokens).unwrap();
    let terms = Terms::AT_ONCE;
    Step::Apply(vec![TestCharge { target, other: None, bucket, units, terms, takes: true }])
}

/// Charges long ago leave full buckets by now, and others do not. A bucket that begins below its
/// capacity is kept for 30 days.
#[tokio::test]
async fn only_buckets_that_are_full_by_now_are_removed() {
    let database = Database::with_live_clock().await;
    let full = Quota::token_bucket(10, HOUR);
    let slow = full.initial(3);
    let day = Duration::from_hours(24);
    for (key, quota, age, is_removed) in [
        (1, full, HOUR, true),
        (2, full, MINUTE, false),
        (3, slow, day * 2, false),
        (4, slow, day * 40, true),
        // Full a minute ago, and in a minute.
        (5, full, MINUTE * 7, true),
        (6, full, MINUTE * 5, false),
        // Full for a second, by which the clock may step back, and a microsecond less.
        (7, full, MINUTE * 6 + SECOND, true),
        (8, full, MINUTE * 6 + SECOND - Duration::from_micros(1), false),
    ] {
        database.set_time(START).await;
        database.decide(&Batch::new(&[take(key, &quota, 1)])).await.unwrap();
        database.set_time(START + age).await;
        assert_eq!(sweep(&database).await, i64::from(is_removed), "{key}");
        database.run("TRUNCATE tollgate.buckets").await.unwrap();
    }
}

#[tokio::test]
async fn a_sweep_removes_rows_of_its_pages_only_and_skips_locked_ones() {
    let database = Database::with_test_clock().await;
    let quota = Quota::token_bucket(10, HOUR);
    let long_ago = Timestamp::from_micros(1);
    for keys in (0..2_000_u64).collect::<Vec<_>>().chunks(100) {
        let steps: Vec<_> = keys.iter().map(|&key| take(key, &quota, 1)).collect();
        database.decide(&Batch::new(&steps).at(long_ago)).await.unwrap();
    }
    let other = database.again().await;
    let locks = "BEGIN; SELECT FROM tollgate.buckets WHERE ctid = '(0,1)' FOR UPDATE";
    other.run(locks).await.unwrap();
    let rows = "SELECT count(*) FROM tollgate.buckets";
    let pages = database.number("SELECT table_pages FROM tollgate.sweep(1000, 1, 1000000)").await;
    assert_eq!(database.number(rows).await, 2_000);
    assert!(pages > 10, "{pages}");
    let first = database.number("SELECT removed FROM tollgate.sweep(0, 5, 1000000)").await;
    assert!(first > 0 && first < 2_000, "{first}");
    let locked = "SELECT count(*) FROM tollgate.buckets WHERE ctid < '(5,0)'";
    assert_eq!(database.number(locked).await, 1);
    assert_eq!(
        database.number("SELECT removed FROM tollgate.sweep(5, 1000, 1000000)").await,
        1_999 - first
    );
    other.run("ROLLBACK").await.unwrap();
    assert_eq!(sweep(&database).await, 1);
    assert_eq!(database.number(rows).await, 0);
}

/// Regression guard for the plan: a sweep reads its pages and no others.
#[tokio::test]
async fn a_sweep_reads_its_own_pages_only() {
    let database = Database::with_test_clock().await;
    let text = "INSERT INTO tollgate.buckets SELECT int4send(i), 0, 9e15::bigint, 1, 1, 1, 1 \
                FROM generate_series(1, 20000) i";
    database.run(text).await.unwrap();
    let read = |client: std::sync::Arc<tokio_postgres::Client>, schema: SchemaName| async move {
        let text = schema.statements(
            "EXPLAIN (FORMAT TEXT) SELECT ctid FROM tollgate.buckets \
             WHERE ctid >= '(3,0)' AND ctid < '(5,0)' \
             AND tollgate.drop_at(gain, capacity, step, value, ts) <= 0",
        );
        let rows = client.query(&text, &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
    };
    let plan = read(database.client.clone(), database.schema.clone()).await;
    assert!(plan.contains("Tid Range Scan"), "{plan}");
    assert_eq!(sweep(&database).await, 0);
}

/// One in two of 4,000 buckets has to go, of each part of the table: those that have used least.
#[tokio::test]
async fn buckets_beyond_the_bound_go_by_the_share_that_they_have_used() {
    let database = Database::with_server_clock().await;
    // They gain nothing. Every fourth has used nearly all, is in debt, or is blocked.
    let text = "INSERT INTO tollgate.buckets SELECT int4send(i), \
                CASE i % 4 WHEN 0 THEN 900 WHEN 1 THEN 10 ELSE -5 END, \
                CASE i % 4 WHEN 3 THEN 9e15 ELSE extract(epoch FROM now()) * 1000000 END::bigint, \
                1, 1, 1000, 9e14::bigint FROM generate_series(1, 4000) i";
    // A session tells the server's statistics what it has changed when it ends.
    let in_a_session = |text: &str| Server::shared().query(&database.schema.statements(text));
    in_a_session(text);
    let kinds = "SELECT count(*) FROM tollgate.buckets WHERE get_byte(key, 3) % 4 = ";
    let count = async |kind: u32| database.number(&format!("{kinds}{kind}")).await;
    let counted = "SELECT pg_stat_get_live_tuples('tollgate.buckets'::regclass) = count(*) \
                   FROM tollgate.buckets";
    let sweep = |pages: i64, most: u32| {
        // A server before version 15 learns of it after a moment.
        until("the statistics have all rows", || {
            in_a_session("ANALYZE tollgate.buckets");
            in_a_session(counted) == "t"
        });
        let swept = format!("SELECT removed FROM tollgate.sweep(0, {pages}, {most})");
        in_a_session(&swept).parse::<i64>().unwrap()
    };
    assert_eq!(sweep(10_000, 4_000), 0);
    assert_eq!(sweep(10_000, 2_500), 1_500);
    assert_eq!(
        [count(0).await, count(1).await, count(2).await, count(3).await],
        [0, 500, 1_000, 1_000]
    );
    assert_eq!(sweep(10_000, 1_000), 1_500);
    assert_eq!([count(1).await, count(2).await, count(3).await], [0, 0, 1_000]);
    // A table that was larger has room in all pages, and what is left is not spread over them.
    database.run("VACUUM tollgate.buckets").await.unwrap();
    assert_eq!(sweep(10, 1_000), 0);
    // A part of the pages gives up a part of what is too much, and pages beyond them nothing.
    let pages = database.number("SELECT table_pages FROM tollgate.sweep(0, 1, 4000)").await;
    let removed = sweep(pages / 4, 500);
    assert!((90..=160).contains(&removed), "{removed}");
    let beyond = format!("SELECT removed FROM tollgate.sweep(100000, 100, {})", i64::MAX);
    assert_eq!(database.number(&beyond).await, 0);
}
