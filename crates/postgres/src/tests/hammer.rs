//! Many connections at once: exactly the capacity is admitted, and no call waits for ever.

use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate_testing::cases::times;

use super::encode::Batch;
use super::{Database, Decided};
use tollgate::algebra::{Bucket, Terms};
use tollgate::backend::Key;
use tollgate::{DAY, Quota};
use tollgate_conformance::dice::Dice;
use tollgate_conformance::history::{Step, TestBucket, TestCharge};

const CONNECTIONS: u64 = 16;

/// A charge of so many tokens.
fn charge(key: u64, quota: &Quota, tokens: u64) -> TestCharge {
    let bucket = Bucket::new(quota).unwrap();
    let target = TestBucket { limit: "hammer", key: Key::from(key), shard: 0 };
    let units = bucket.units(tokens).unwrap();
    TestCharge { target, other: None, bucket, units, terms: Terms::AT_ONCE, takes: true }
}

/// A step of one charge.
fn take(key: u64, quota: &Quota) -> Step {
    Step::Apply(vec![charge(key, quota, 1)])
}

/// A quota that gains no token within the test.
fn of_capacity(capacity: u64) -> Quota {
    Quota::token_bucket(1, DAY).capacity(capacity)
}

/// How many of these charges are admitted, by the formula, on the buckets that `decide` returned.
fn admitted((now, stored): &Decided, batch: &Batch, steps: &[Step]) -> u64 {
    let mut records = super::records::Records::new(*now);
    for (name, cell) in batch.names.iter().zip(stored) {
        if let Some(record) = tollgate::backend::BucketRecord::from_numbers(*cell) {
            records.stored.insert(name.clone(), record);
        }
    }
    let is_admitted = |step: &Step| {
        let readings = records.play(step);
        readings.iter().all(|one| one.verdict() == tollgate::algebra::Verdict::Admitted)
    };
    steps.iter().map(is_admitted).filter(|&admitted| admitted).count() as u64
}

/// Lets all connections decide at once, and adds up what they admit.
async fn hammer(
    database: &Database,
    batches: impl Fn(u64) -> Vec<Vec<Step>> + Send + Sync + 'static,
) -> u64 {
    let batches = Arc::new(batches);
    let mut tasks = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let (one, batches) = (database.again().await, batches.clone());
        tasks.spawn(async move {
            let mut sum = 0;
            for steps in batches(connection) {
                let batch = Batch::new(&steps);
                let decided = one.decide(&batch).await.unwrap();
                sum += admitted(&decided, &batch, &steps);
            }
            sum
        });
    }
    tasks.join_all().await.into_iter().sum()
}

#[tokio::test]
async fn one_row_admits_exactly_the_capacity() {
    let database = Database::with_server_clock().await;
    let quota = of_capacity(500);
    let sum = hammer(&database, move |_| vec![vec![take(7, &quota)]; 60]).await;
    assert_eq!(sum, 500);
}

/// Batches of several charges of the same bucket, with other buckets before and behind it.
#[tokio::test]
async fn one_row_in_larger_batches_admits_exactly_the_capacity() {
    let database = Database::with_server_clock().await;
    let (hot, wide) = (of_capacity(700), of_capacity(100_000));
    let sum = hammer(&database, move |connection| {
        let steps = move |nth: u64| {
            let mut steps = vec![take(5, &hot); 3];
            steps.extend((0..4).map(|i| take((connection + nth + i * 3) % 11 + 10, &wide)));
            steps.push(take(connection + 100, &wide));
            steps
        };
        (0..20).map(steps).collect()
    })
    .await;
    assert_eq!(sum, 700 + CONNECTIONS * 20 * 5);
}

#[tokio::test]
async fn a_thousand_rows_admit_exactly_their_capacities() {
    let database = Database::with_server_clock().await;
    let quota = of_capacity(3);
    let sum = hammer(&database, move |connection| {
        let mut dice = Dice(connection);
        // Each bucket is asked for five of its three tokens at least, in an order of its own.
        let mut keys: Vec<u64> = (0..1_000).filter(|key| key % CONNECTIONS == connection).collect();
        keys = keys.into_iter().flat_map(|key| [key; 5]).collect();
        keys.extend((0..200).map(|_| dice.below(1_000)));
        for place in (1..keys.len()).rev() {
            keys.swap(place, usize::try_from(dice.below(place as u64 + 1)).unwrap());
        }
        keys.chunks(16).map(|keys| keys.iter().map(|&key| take(key, &quota)).collect()).collect()
    })
    .await;
    assert_eq!(sum, 3_000);
}

/// All or nothing: the smaller limit decides, and nothing is lost from the other one.
#[tokio::test]
async fn two_limits_at_once_admit_exactly_what_both_have() {
    let database = Database::with_server_clock().await;
    let (many, few) = (of_capacity(1_000), of_capacity(300));
    let sum = hammer(&database, move |connection| {
        let mut both = vec![charge(1, &many, 1), charge(2, &few, 1)];
        if connection % 2 == 0 {
            both.reverse();
        }
        vec![vec![Step::Apply(both)]; 40]
    })
    .await;
    assert_eq!(sum, 300);
    let tokens = |row: &(Vec<u8>, [i64; 6])| row.1[0] / row.1[3];
    assert_eq!(database.rows().await.iter().map(tokens).collect::<Vec<_>>(), [700, 0]);
}

/// Two callers that name the same buckets in opposite orders, some of them new, while a third one
/// removes them.
#[tokio::test]
async fn opposite_orders_of_the_same_buckets_do_not_deadlock() {
    // Two callers: 10,000 times in CI.
    let calls = times(5_000, 1_000);
    let database = Database::with_server_clock().await;
    let quota = of_capacity(100_000);
    let mut tasks = JoinSet::new();
    for caller in 0..3 {
        let one = database.again().await;
        tasks.spawn(async move {
            for nth in 0..calls {
                let keys = [nth % 3, 3, 4 + nth % 2, 6];
                let mut charges: Vec<_> = keys.map(|key| charge(key, &quota, 1)).to_vec();
                let steps = match caller {
                    2 if nth % 10 > 0 => continue,
                    2 => vec![Step::Reset(charges.into_iter().map(|one| one.target).collect())],
                    _ => {
                        if caller == 1 {
                            charges.reverse();
                        }
                        // As one operation, and as several.
                        if nth % 2 == 0 {
                            vec![Step::Apply(charges)]
                        } else {
                            charges.into_iter().map(|one| Step::Apply(vec![one])).collect()
                        }
                    }
                };
                one.decide(&Batch::new(&steps)).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.number(deadlocks).await, 0);
}
