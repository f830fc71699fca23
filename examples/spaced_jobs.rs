//! Jobs at even distances: with a capacity of zero nothing is saved up, so every job has an instant of
//! its own, known when it is reserved.
//!
//! Run it with `cargo run --example spaced_jobs`.

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};
use tollgate::{Limit, Quota, RateLimited, RateLimiter, SECOND, Timestamp};

/// This many jobs a second, and never two at once.
pub(crate) const fn limit(jobs_a_second: u64) -> Limit {
    Limit::new("jobs", Quota::token_bucket(jobs_a_second, SECOND).capacity(0))
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) number: u32,
    /// The instant at which the job may run.
    pub(crate) planned: Timestamp,
    /// How long after the start it ran.
    pub(crate) ran: Duration,
}

/// Reserves this many jobs at once, and lists them in the order in which they ran.
pub(crate) async fn run(
    limiter: &RateLimiter,
    limit: &Limit,
    jobs: u32,
) -> Result<Vec<Job>, RateLimited> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..jobs {
        // Never refused: the debt of this limit has no bound.
        let reservation = limiter.limit(limit).reserve().await?;
        let planned = reservation.at();
        running.spawn(async move {
            let _permit = reservation.ready().await;
            Job { number, planned, ran: start.elapsed() }
        });
    }
    Ok(running.join_all().await)
}

#[tokio::main]
async fn main() -> Result<(), RateLimited> {
    for Job { number, planned, ran } in run(&RateLimiter::in_memory(), &limit(8), 8).await? {
        let planned = Duration::from_micros(planned.as_micros().unsigned_abs());
        println!("job {number}: planned for {planned:.3?}, ran {ran:.3?} after the start");
    }
    Ok(())
}
