//! Tasks that ask without a pause, and the decisions they get in a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Load;
use super::random::Random;
use crate::contestants::Contestant;

/// What a flood came to.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Decisions a second, once all tasks were under way.
    pub rate: f64,
    /// All decisions, those of the start and the end as well.
    pub decisions: f64,
    /// Those that were not as they had to be.
    pub unexpected: u64,
}

#[derive(Default)]
struct Tally {
    decisions: AtomicU64,
    unexpected: AtomicU64,
    stopped: AtomicBool,
}

pub(super) async fn flood<C: Contestant>(contestant: &C, load: Load, time: Duration) -> Flood {
    let tally = Arc::new(Tally::default());
    let asking: Vec<_> = (0..load.tasks)
        .map(|task| {
            let asking = ask(contestant.clone(), load, tally.clone(), Random(task as u64));
            tokio::spawn(asking)
        })
        .collect();
    // Until all tasks have asked a few times.
    sleep(time / 8).await;
    let (start, before) = (Instant::now(), tally.decisions.load(Relaxed));
    sleep(time).await;
    let (took, after) = (start.elapsed(), tally.decisions.load(Relaxed));
    tally.stopped.store(true, Relaxed);
    for task in asking {
        task.await.expect("a task that does not panic");
    }
    Flood {
        rate: (after - before) as f64 / took.as_secs_f64(),
        decisions: tally.decisions.load(Relaxed) as f64,
        unexpected: tally.unexpected.load(Relaxed),
    }
}

async fn ask<C: Contestant>(mut contestant: C, load: Load, tally: Arc<Tally>, mut random: Random) {
    while !tally.stopped.load(Relaxed) {
        let answer = contestant.decide(random.below(load.keys)).await;
        tally.decisions.fetch_add(1, Relaxed);
        if answer != load.expected {
            tally.unexpected.fetch_add(1, Relaxed);
        }
    }
}

pub(super) async fn each_once<C: Contestant>(contestant: &C, keys: usize, tasks: usize) {
    let asking: Vec<_> = (0..tasks)
        .map(|task| {
            let mut contestant = contestant.clone();
            tokio::spawn(async move {
                for key in (task..keys).step_by(tasks) {
                    contestant.decide(key).await;
                }
            })
        })
        .collect();
    for task in asking {
        task.await.expect("a task that does not panic");
    }
}
