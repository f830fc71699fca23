//! Transactions of callers: the answers are right, or an error says that they cannot be.

use super::Database;
use super::encode::Batch;
use tollgate::algebra::{Bucket, Terms};
use tollgate::backend::Key;
use tollgate::{HOUR, Quota};
use tollgate_conformance::history::START;
use tollgate_conformance::history::{Step, TestBucket, TestCharge};

const QUOTA: Quota = Quota::token_bucket(10, HOUR);

fn charge(key: u64, tokens: u64) -> TestCharge {
    let bucket = Bucket::new(&QUOTA).unwrap();
    let target = TestBucket { limit: "a", key: Key::from(key), shard: 0 };
    let units = bucket.units(tokens).unwrap();
    TestCharge { target, other: None, bucket, units, terms: Terms::AT_ONCE, takes: true }
}

fn batch(steps: &[Step]) -> Batch {
    Batch::new(steps).at(START)
}

fn take(key: u64, tokens: u64) -> Batch {
    batch(&[Step::Apply(vec![charge(key, tokens)])])
}

/// In such a transaction a plain read shows the buckets as they were when it began: full ones that
/// others have emptied, or empty ones that others have reset.
#[tokio::test]
async fn what_others_have_changed_since_is_an_error_and_never_an_old_answer() {
    let database = Database::with_test_clock().await;
    let mine = database.again().await;
    let look = |key| TestCharge { takes: false, ..charge(key, 1) };
    let reset = |key| batch(&[Step::Reset(vec![charge(key, 0).target])]);
    // What the others do, and then what this transaction asks.
    let cases = [
        ("a charge on a row", take(1, 9), take(1, 1)),
        ("a look at a row", take(1, 9), batch(&[Step::Apply(vec![look(1)])])),
        ("a refusal by a row", reset(1), take(1, 10)),
        ("a charge on a new row", take(2, 9), take(2, 1)),
        ("a look at a new row", take(2, 9), batch(&[Step::Apply(vec![look(2)])])),
        (
            "two charges",
            take(2, 9),
            batch(&[Step::Apply(vec![charge(1, 1)]), Step::Apply(vec![charge(2, 1)])]),
        ),
    ];
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for (what, theirs, asked) in &cases {
            database.run("TRUNCATE tollgate.buckets").await.unwrap();
            database.decide(&take(1, 1)).await.unwrap();
            mine.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM tollgate.buckets"))
                .await
                .unwrap();
            database.decide(theirs).await.unwrap();
            let error = mine.decide(asked).await.expect_err(what);
            let code = error.code().expect("an error of the server").code();
            assert_eq!(code, "40001", "{what}: {error:?}");
            mine.run("ROLLBACK").await.unwrap();
        }
    }
}

/// A transaction that decides twice finds its own charges, and one that is rolled back has none.
#[tokio::test]
async fn decisions_of_a_transaction_are_kept_or_rolled_back_with_it() {
    let database = Database::with_test_clock().await;
    let token = i64::try_from(Bucket::new(&QUOTA).unwrap().token()).unwrap();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        database.run("TRUNCATE tollgate.buckets").await.unwrap();
        for end in ["ROLLBACK", "COMMIT"] {
            database.run(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
            let (_, [first]) = one(database.decide(&take(1, 4)).await.unwrap());
            let (_, [second]) = one(database.decide(&take(1, 3)).await.unwrap());
            assert_eq!((first, second[0]), ([0; 6], 6 * token), "{level}");
            database.run(end).await.unwrap();
        }
        let (_, [held]) = one(database.decide(&take(1, 0)).await.unwrap());
        assert_eq!(held[0], 3 * token, "{level}");
    }
}

fn one((now, stored): super::Decided) -> (tollgate::clock::Timestamp, [[i64; 6]; 1]) {
    (now, stored.try_into().unwrap())
}
