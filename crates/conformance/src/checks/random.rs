//! Random calls.

use std::env;

use super::super::history::{History, Step, TestAdjustment, TestBucket, TestCharge};
use super::super::subject::{START, Subject};
use super::super::trial::Trial;
use tollgate::backend::{Charge, Reading};
use tollgate::clock::Clock;

/// The calls of one history.
const STEPS: usize = 120;

/// How many histories are played.
pub(super) fn seeds() -> u64 {
    let wanted = env::var("TOLLGATE_CONFORMANCE_SEEDS").ok();
    wanted.map_or(16, |wanted| wanted.parse().expect("TOLLGATE_CONFORMANCE_SEEDS is a number"))
}

/// Calls of all kinds on a few limits and keys: both kinds of quotas with numbers of all sizes,
/// windows with and without a start, shards, quotas that change between calls and within one. If
/// the suite sets the clock, time jumps as well, and sometimes goes back.
pub(crate) async fn random_calls_are_answered_as_the_algorithm_says(subject: Subject) {
    for seed in 0..seeds() {
        let mut trial = Trial::random(&subject, seed);
        trial.set_time(START).await;
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            if let Some(clock) = &subject.clock {
                let next = history.next_time(clock.now(), START);
                trial.set_time(next).await;
            }
            match history.step() {
                Step::Apply(charges) => {
                    let charges: Vec<_> = charges.iter().map(TestCharge::charge).collect();
                    trial.apply(&charges).await;
                }
                Step::Adjust(adjustments) => {
                    let adjustments: Vec<_> =
                        adjustments.iter().map(TestAdjustment::adjustment).collect();
                    trial.adjust(&adjustments).await;
                }
                Step::Reset(buckets) => {
                    trial.reset(&buckets.iter().map(TestBucket::id).collect::<Vec<_>>()).await;
                }
            }
            // The states that charges have left, for adjustments to name.
            let drawn = history.draw_charge();
            let charge: Charge<'_> = drawn.charge();
            let applied = trial.apply(&[charge]).await;
            history.seen.extend(applied.readings().iter().map(Reading::state));
            let old = history.seen.len().saturating_sub(6);
            history.seen.drain(..old);
        }
    }
}
