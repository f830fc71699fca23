//! Jobs at even distances: with a capacity of zero nothing is saved up, so that every job has an
//! instant of its own, known when it is asked for.
//!
//! Run it with `cargo run --example spaced_jobs`.

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};
use tollgate::{Decision, Error, Limit, Quota, RateLimiter, SECOND, Timestamp};

/// So many jobs a second, and never two at once.
pub(crate) const fn limit(jobs_a_second: u64) -> Limit {
    Limit::new("jobs", Quota::token_bucket(jobs_a_second, SECOND).capacity(0))
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) number: u32,
    /// The instant that it was given.
    pub(crate) planned: Timestamp,
    /// How long after the start it ran.
    pub(crate) ran: Duration,
}

/// Asks for so many jobs at once, and lists them in the order in which they ran.
pub(crate) async fn run(
    limiter: &RateLimiter,
    limit: &Limit,
    jobs: u32,
) -> Result<Vec<Job>, Error> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..jobs {
        let Decision::Reserved(turn) = limiter.limit(limit).reserve().await? else {
            unreachable!("nothing is saved up, and debt has no bound");
        };
        let planned = turn.at();
        running.spawn(async move {
            turn.ready().await;
            Job { number, planned, ran: start.elapsed() }
        });
    }
    Ok(running.join_all().await)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    for Job { number, planned, ran } in run(&RateLimiter::in_memory(), &limit(8), 8).await? {
        let planned = Duration::from_micros(planned.as_micros().unsigned_abs());
        println!("job {number}: planned for {planned:.3?}, ran {ran:.3?} after the start");
    }
    Ok(())
}
