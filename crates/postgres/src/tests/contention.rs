//! Calls that wait for others decide on what these have left, at the time at which they go on.

use std::time::Duration;

use super::Database;
use super::encode::{Batch, name};
use super::records::Records;
use tollgate::algebra::{Bucket, Terms, Verdict};
use tollgate::backend::{BucketRecord, Change, Key};
use tollgate::clock::Timestamp;
use tollgate::{Quota, SECOND};
use tollgate_conformance::history::START;
use tollgate_conformance::history::{Step, TestAdjustment, TestBucket, TestCharge};
use tollgate_testing::cases::times;

/// A token each second.
const QUOTA: Quota = Quota::token_bucket(10, SECOND.saturating_mul(10));

fn target(key: u64) -> TestBucket {
    TestBucket { limit: "a", key: Key::from(key), shard: 0 }
}

fn charge(key: u64, tokens: u64) -> TestCharge {
    let bucket = Bucket::new(&QUOTA).unwrap();
    let units = bucket.units(tokens).unwrap();
    let (other, terms) = (None, Terms::AT_ONCE);
    TestCharge { target: target(key), other, bucket, units, terms, takes: true }
}

fn take(key: u64, tokens: u64) -> Step {
    Step::Apply(vec![charge(key, tokens)])
}

fn list(charges: &[(u64, u64)]) -> Step {
    Step::Apply(charges.iter().map(|&(key, tokens)| charge(key, tokens)).collect())
}

fn look(key: u64) -> Step {
    Step::Apply(vec![TestCharge { takes: false, ..charge(key, 1) }])
}

fn refund(key: u64, tokens: u64) -> Step {
    let bucket = Bucket::new(&QUOTA).unwrap();
    let change = Change::Refund { units: bucket.units(tokens).unwrap() };
    Step::Adjust(vec![TestAdjustment { target: target(key), bucket, change }])
}

fn reset(key: u64) -> Step {
    Step::Reset(vec![target(key)])
}

/// Waits until a call of `decide` in this schema waits for a lock.
async fn until_one_waits(database: &Database) {
    let schema = database.schema.to_string();
    let text = "SELECT count(*) FROM pg_stat_activity \
                WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0";
    let waits = async {
        while database.client.query_one(text, &[&schema]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap();
}

/// Opens three connections to a new schema, which a test uses for all of its cases. The server plans the
/// functions again for each connection, which takes 0.1 s of a processor.
async fn connections() -> [Database; 3] {
    let database = Database::with_live_clock().await;
    let [one, other] = [database.again().await, database.again().await];
    [database, one, other]
}

/// Carries out the steps of another caller, whose transaction stays open until these wait for it.
/// Returns what is told, and the records as they have to be.
async fn wait_for_theirs(
    [database, one, other]: &[Database; 3],
    before: &[Step],
    theirs: &[Step],
    batch: &Batch,
    later: Duration,
) -> (Timestamp, Vec<(Vec<u8>, [i64; 6])>) {
    database.run("TRUNCATE tollgate.buckets").await.unwrap();
    database.set_time(START).await;
    database.decide(&Batch::new(before)).await.unwrap();
    other.run("BEGIN").await.unwrap();
    other.decide(&Batch::new(theirs)).await.unwrap();
    let ends = async {
        until_one_waits(database).await;
        database.set_time(START + later).await;
        other.run("COMMIT").await.unwrap();
    };
    let (decided, ()) = tokio::join!(one.decide(batch), ends);
    let (now, stored) = decided.unwrap();
    (now, batch.names.iter().cloned().zip(stored).collect())
}

/// What is tried, the steps before, theirs, mine, and whether mine are all admitted.
type Case<'a> = (&'a str, &'a [Step], &'a [Step], &'a [Step], bool);

/// The rows once these steps were made, on what is stored.
fn after(now: Timestamp, stored: &mut Records, steps: &[Step]) -> bool {
    stored.now = now;
    let readings: Vec<_> = steps.iter().map(|step| stored.play(step)).collect();
    readings.iter().flatten().all(|one| one.verdict() == Verdict::Admitted)
}

#[tokio::test]
async fn a_call_that_waits_decides_on_what_is_there_then() {
    let connections = connections().await;
    let cases: &[Case<'_>] = &[
        ("a charge", &[take(1, 1)], &[take(1, 2)], &[take(1, 3)], true),
        ("a charge that is refused then", &[take(1, 1)], &[take(1, 9)], &[take(1, 3)], false),
        ("a charge on a new row", &[], &[take(1, 2)], &[take(1, 3)], true),
        ("a charge on a removed row", &[take(1, 7)], &[reset(1)], &[take(1, 1)], true),
        ("a refund", &[take(1, 5)], &[take(1, 2)], &[refund(1, 3)], true),
        ("a reset", &[take(1, 5)], &[take(1, 2)], &[reset(1)], true),
        (
            "a batch",
            &[take(1, 1), take(2, 1)],
            &[take(2, 2)],
            &[take(3, 1), take(2, 3), take(1, 1), take(2, 1)],
            true,
        ),
        (
            "a batch of which one charge is refused then",
            &[take(2, 1)],
            &[take(2, 8)],
            &[take(3, 1), take(2, 3), take(1, 1)],
            false,
        ),
        ("a list", &[take(1, 1), take(2, 1)], &[take(2, 2)], &[list(&[(1, 1), (2, 3)])], true),
        // What the list has taken from the first bucket by then is given back.
        (
            "a list that is refused then",
            &[take(1, 1), take(2, 1)],
            &[take(2, 9)],
            &[list(&[(1, 1), (2, 3)])],
            false,
        ),
        (
            "a list on new rows that is refused then",
            &[],
            &[take(2, 10)],
            &[list(&[(1, 1), (2, 3), (3, 1)])],
            false,
        ),
        (
            "a list, a look, a refund and a reset",
            &[take(1, 5), take(2, 1), take(4, 3), take(5, 3)],
            &[take(2, 1)],
            &[list(&[(1, 1), (2, 3)]), look(3), look(4), refund(6, 1), reset(5), take(5, 2)],
            true,
        ),
        (
            "a list in opposite order",
            &[take(1, 1), take(2, 1)],
            &[list(&[(2, 1), (1, 1)])],
            &[list(&[(1, 1), (2, 1)]), list(&[(2, 1), (1, 1)])],
            true,
        ),
    ];
    for (what, before, theirs, mine, admits) in cases {
        let later = Duration::from_micros(1_500_000);
        for batch in Batch::of_own_charges(mine).into_iter().chain([Batch::general(mine)]) {
            let (now, stored) = wait_for_theirs(&connections, before, theirs, &batch, later).await;
            assert_eq!(now, START + later, "{what}");
            let mut expected = Records::new(START);
            let _ = (after(START, &mut expected, before), after(START, &mut expected, theirs));
            for (name, cell) in &stored {
                assert_eq!(*cell, expected.cell(name), "{what}");
            }
            assert_eq!(after(now, &mut expected, mine), *admits, "{what}");
            let expected: Vec<_> = expected
                .stored
                .iter()
                .map(|(name, one)| (name.clone(), one.to_numbers()))
                .collect();
            assert_eq!(connections[0].rows().await, expected, "{what}");
        }
    }
}

/// A charge was refused, and is not locked. By the time of the second decision it would be admitted:
/// then the time of the first one is told, by which the refusal is right.
#[tokio::test]
async fn a_refusal_beside_a_charge_that_waits_stays_one() {
    let connections = connections().await;
    let (before, theirs) = ([take(1, 10), take(2, 1)], [take(2, 2)]);
    let mine = [take(1, 1), take(2, 3)];
    let later = SECOND * 2;
    for batch in [Batch::general(&mine), Batch::of_own_charges(&mine).unwrap()] {
        let (now, stored) = wait_for_theirs(&connections, &before, &theirs, &batch, later).await;
        assert_eq!(now, START);
        let mut expected = Records::new(START);
        for (name, cell) in stored {
            expected.stored.insert(name, BucketRecord::from_numbers(cell).unwrap());
        }
        assert!(!after(now, &mut expected, &mine));
        let left = |key| expected.stored[&name(target(key).id())].to_numbers();
        assert_eq!(
            connections[0].rows().await.iter().map(|row| row.1).collect::<Vec<_>>(),
            [left(1), left(2)]
        );
        assert_eq!([left(1)[0], left(2)[0]], [0, 4_000_000]);
    }
}

/// A row that calls without end want is as sound as one that none wants; one that a transaction keeps
/// is not, nor is one that is being inserted.
#[tokio::test(flavor = "multi_thread")]
async fn only_rows_that_one_transaction_holds_are_told_as_locked() {
    let database = Database::with_server_clock().await;
    let mut hammers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let other = database.again().await;
        hammers.spawn(async move {
            for _ in 0..u32::MAX {
                other.decide(&Batch::new(&[take(1, 1), reset(1)])).await.unwrap();
            }
        });
    }
    let [hot, held, new, none] = [1, 2, 3, 4].map(|key| name(target(key).id()));
    database.decide(&Batch::new(&[take(2, 1)])).await.unwrap();
    let other = database.again().await;
    other.run("BEGIN").await.unwrap();
    other.decide(&Batch::new(&[take(2, 1), take(3, 1)])).await.unwrap();
    let sick = database.schema.statements("SELECT tollgate.sick($1, 1000, $2)");
    for patience in [100_i32, 300].repeat(usize::try_from(times(4, 1)).unwrap()) {
        let names = [&*hot, &*held, &*new, &*none];
        let told = database.client.query_one(&sick, &[&&names[..], &patience]).await.unwrap();
        let mut places = told.get::<_, Vec<i32>>(0);
        places.sort_unstable();
        assert_eq!(places, [2, 3], "{patience} ms");
    }
}
