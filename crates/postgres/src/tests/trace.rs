//! The same calls at the same instants leave the same in the table and in a map of records, to the
//! bit.

use tollgate_testing::cases::seeds;

use super::Database;
use super::encode::Batch;
use super::records::Records;
use tollgate::backend::BucketRecord;
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate_conformance::history::START;
use tollgate_conformance::history::{History, Step};

/// Plays a history, several steps at a time, and compares what was and what is stored.
async fn play(database: &Database, seed: u64, steps: usize) -> usize {
    database.run("TRUNCATE tollgate.buckets").await.unwrap();
    let clock = ManualClock::new(START);
    let mut records = Records::new(START);
    let mut history = History::new(seed);
    let mut played = 0;
    while played < steps {
        history.pass(&clock);
        records.now = clock.now();
        let together = if history.dice.one_in(2) { 1 } else { 1 + history.dice.below(9) };
        let steps: Vec<_> = (0..together).map(|_| history.step()).collect();
        let steps = if history.dice.one_in(2) { steps } else { own_charges(steps, &mut history) };
        let is_general = history.dice.one_in(3);
        let batch = if is_general { Batch::general(&steps) } else { Batch::new(&steps) };
        let batch = batch.at(clock.now());
        let before: Vec<_> = batch.names.iter().map(|name| records.cell(name)).collect();
        for step in &steps {
            let readings = records.play(step);
            // The states that charges have left, for adjustments to name.
            history.seen.extend(readings.iter().map(tollgate::backend::Reading::state));
            played += 1;
        }
        let old = history.seen.len().saturating_sub(6);
        history.seen.drain(..old);
        let place = format!("seed {seed}, {played} steps, at {:?}: {steps:?}", clock.now());
        let decided = database.decide(&batch).await;
        let (now, stored) = decided.unwrap_or_else(|error| panic!("{error:?}: {place}"));
        assert_eq!(now, clock.now(), "{place}");
        for (told, before) in stored.iter().zip(&before) {
            // Several charges of a bucket each tell what they found refreshed.
            let is_own = !is_general && Batch::of_own_charges(&steps).is_some();
            assert!(
                told == before || is_own && *told == refreshed(*before, now),
                "{told:?}, {before:?}: {place}"
            );
        }
        let mut expected = records.stored.iter();
        let expected: Vec<_> =
            expected.by_ref().map(|(name, one)| (name.clone(), one.to_numbers())).collect();
        assert_eq!(database.rows().await, expected, "{place}");
        assert!(is_dropped_when_allowed(database, &records).await, "{place}");
    }
    played
}

/// The charges among these steps, and some more, that have a bucket each. All steps if there is none.
fn own_charges(steps: Vec<Step>, history: &mut History) -> Vec<Step> {
    let more: Vec<_> = (0..12).map(|_| history.step()).collect();
    let mut own = Vec::new();
    for step in steps.iter().chain(&more) {
        let with: Vec<_> = own.iter().chain([step]).cloned().collect();
        if Batch::of_own_charges(&with).is_some() {
            own = with;
        }
    }
    if own.is_empty() { steps } else { own }
}

/// A stored bucket as it is at an instant.
fn refreshed(cell: [i64; 6], at: Timestamp) -> [i64; 6] {
    let [value, ts, gain, token, capacity, step] = cell;
    let now = at.as_micros();
    let steps = (now - ts).max(0) / step.abs().max(1);
    let value = i128::from(value) + i128::from(steps) * i128::from(gain);
    let value = i64::try_from(value.min(capacity.into())).unwrap();
    [value, ts + steps * step.abs(), gain, token, capacity, step]
}

/// Whether each row may be removed as soon as, and not before, the contract says so.
async fn is_dropped_when_allowed(database: &Database, records: &Records) -> bool {
    const KEPT: i64 = 30 * 86_400_000_000;
    let text = database.schema.statements(
        "SELECT tollgate.drop_at(gain, capacity, step, value, ts) FROM tollgate.buckets ORDER BY key",
    );
    let rows = database.client.query(&text, &[]).await.unwrap();
    rows.iter().zip(records.stored.values()).all(|(row, record): (_, &BucketRecord)| {
        let (drop_at, full_at): (i64, i64) = (row.get(0), record.full_at().as_micros());
        match record.droppable_at() {
            Some(at) => drop_at == at.as_micros().min(1 << 62),
            // Kept after it was full, and after its last use.
            None => drop_at >= full_at.min(1 << 62) + KEPT,
        }
    })
}

/// Both kinds of limits with numbers of all sizes up to 2^53, windows with and without a start,
/// shards, `initial` below the capacity, quotas that change between calls and within one,
/// adjustments of each kind, resets, and a clock that goes back.
#[tokio::test]
async fn the_server_stores_what_the_formula_says() {
    let database = Database::with_test_clock().await;
    let (mut played, mut wanted) = (0, 0);
    for seed in seeds(50) {
        played += play(&database, seed, 180).await;
        wanted += 180;
    }
    assert!(played >= wanted && wanted > 0, "{played}");
}

/// The same in transactions that see the buckets as they were when they began, where every bucket is
/// locked.
#[tokio::test]
async fn the_server_stores_what_the_formula_says_in_stricter_transactions() {
    let database = Database::with_test_clock().await;
    for (seed, level) in seeds(10).zip(["repeatable read", "serializable"].into_iter().cycle()) {
        let setting = format!("SET default_transaction_isolation = '{level}'");
        database.run(&setting).await.unwrap();
        assert!(play(&database, seed, 120).await >= 120);
    }
}

/// A step alone takes the way of one charge, and two of them that of several.
#[tokio::test]
async fn one_charge_alone_and_with_others_is_decided_alike() {
    let database = Database::with_test_clock().await;
    let mut decided = 0;
    for seed in seeds(20) {
        let mut history = History::new(seed * 4);
        let step = loop {
            let step = history.step();
            if matches!(&step, Step::Apply(charges) if charges.len() == 1) {
                break step;
            }
        };
        let mut left = Vec::new();
        for times in [1_i64, 2] {
            database.run("TRUNCATE tollgate.buckets").await.unwrap();
            for at in 0..4 {
                let now = START + std::time::Duration::from_secs(at);
                for _ in 0..2 / times {
                    let steps = vec![step.clone(); usize::try_from(times).unwrap()];
                    database.decide(&Batch::new(&steps).at(now)).await.unwrap();
                }
            }
            left.push(database.rows().await);
            decided += 1;
        }
        assert_eq!(left[0], left[1], "seed {seed}: {step:?}");
    }
    assert!(decided >= 2);
}
