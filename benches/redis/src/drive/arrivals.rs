//! Requests that come by a schedule, and how long each waited for its decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::yield_now;

use super::random::Random;
use crate::contestants::{Answer, Contestant};

/// How long decisions took, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    pub p50: f64,
    pub p99: f64,
    pub unexpected: u64,
}

/// A latency that is not known yet.
const WAITING: u64 = u64::MAX;

/// Each latency counts from the instant at which the request was to come: where the program is late
/// to ask, that is part of the wait.
pub(super) async fn arrivals<C: Contestant>(
    contestant: &C,
    rate: f64,
    keys: usize,
    time: Duration,
) -> Latencies {
    let mut random = Random(7);
    let due = schedule(&mut random, rate, time);
    let took: Arc<[AtomicU64]> = due.iter().map(|_| AtomicU64::new(WAITING)).collect();
    let unexpected = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut last = None;
    for (nth, due) in due.into_iter().enumerate() {
        // Timers count whole milliseconds, so time is watched; to yield is to look for answers.
        while start.elapsed() < due {
            yield_now().await;
        }
        let (mut contestant, key) = (contestant.clone(), random.below(keys));
        let (took, unexpected) = (took.clone(), unexpected.clone());
        last = Some(tokio::spawn(async move {
            if contestant.decide(key).await != Answer::Admitted {
                unexpected.fetch_add(1, Relaxed);
            }
            let waited = start.elapsed().saturating_sub(due).as_nanos();
            took[nth].store(u64::try_from(waited).unwrap_or(u64::MAX - 1), Relaxed);
        }));
    }
    if let Some(last) = last {
        last.await.expect("a task that does not panic");
    }
    while took.iter().any(|nanos| nanos.load(Relaxed) == WAITING) {
        yield_now().await;
    }
    let mut sorted: Vec<_> = took.iter().map(|nanos| nanos.load(Relaxed)).collect();
    sorted.sort_unstable();
    let at = |share: usize| match sorted.len() {
        0 => f64::NAN,
        len => sorted[(len - 1) * share / 100] as f64 / 1_000.0,
    };
    Latencies { p50: at(50), p99: at(99), unexpected: unexpected.load(Relaxed) }
}

/// A Poisson process: the gaps between arrivals know nothing of each other.
fn schedule(random: &mut Random, rate: f64, time: Duration) -> Vec<Duration> {
    let mut at = 0.0;
    std::iter::from_fn(|| {
        at -= random.unit().ln() / rate;
        (at < time.as_secs_f64()).then(|| Duration::from_secs_f64(at))
    })
    .collect()
}
