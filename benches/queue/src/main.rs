//! What it costs to wait in one key's line, on a runtime of one thread.

mod counted;
mod line;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::Request;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};
use tower::Service;

use crate::line::{Line, Numbered, RATE, Random, Turns, Wait, line};

const REQUESTS: u32 = 100_000;
const SEED: u64 = 42;
/// So long that no waiter's turn comes while bytes are counted or waiters leave.
const FAR: Duration = Duration::from_secs(3_600);
/// Long enough for all to be in line before the first turn.
const SOON: Duration = Duration::from_secs(2);
/// One cost for all, or one of so many for each.
const COSTS: [(u64, &str); 2] = [(1, "equal"), (50, "1 to 50")];

fn main() {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of one thread").block_on(async {
        bytes().await;
        lateness().await;
        times().await;
    });
}

async fn bytes() {
    println!("bytes a waiter, beyond those of a request");
    println!("  waiters   costs      bytes   all told, when all are gone");
    for requests in [1_000, 10_000, REQUESTS] {
        for (costs, name) in COSTS {
            let line = line(costs, FAR, Turns::new(0)).await;
            let (each, left) = bytes_of(line, requests);
            println!("  {requests:>7}   {name:<7} {each:>8.1}   {left:>27}");
        }
    }
}

fn bytes_of<S>(mut line: Line<S>, requests: u32) -> (f64, i64)
where
    S: Service<Numbered, Future: Wait>,
{
    let mut random = Random(SEED);
    let hold = || (0..requests).map(|number| Some(Request::new(number))).collect::<Vec<_>>();
    let (_requests, bare) = counted::held(hold);
    let enter = |number| Some(line.enter(number, &mut random));
    let (waiting, all) = counted::held(|| (0..requests).map(enter).collect::<Vec<_>>());
    let ((), freed) = counted::held(|| drop(waiting));
    ((all - bare) as f64 / f64::from(requests), all + freed)
}

async fn lateness() {
    println!("\nlateness of {REQUESTS} requests that wait at once, {RATE} of them due each second");
    println!("  waiting by             least        p50        p99      p99.9        max");
    // A turn that comes `number` steps after the first.
    let promised = |number| SOON + Duration::from_secs(1) * (number + 1) / RATE as u32;

    let turns = Turns::new(REQUESTS);
    let mut line = line(1, SOON, turns.clone()).await;
    let mut random = Random(SEED);
    // When the last one was polled.
    let asked = Arc::new(OnceLock::new());
    let mut last = None;
    for number in 0..REQUESTS {
        // A task each, which is how a server holds its requests.
        let response = line.call(number, &mut random);
        let (asked, start) = (Arc::clone(&asked), turns.start);
        last = Some(tokio::spawn(async move {
            if number == REQUESTS - 1 {
                let _ = asked.set(start.elapsed());
            }
            drop(response.await);
        }));
    }
    finish(last).await;
    let asked = asked.get().copied().unwrap_or(Duration::MAX);
    assert!(asked < SOON, "not all were in line before the first turn: {asked:?}");
    row("the queue", &turns.lateness(promised));

    let turns = Turns::new(REQUESTS);
    let mut last = None;
    for number in 0..REQUESTS {
        let turns = turns.clone();
        let due = turns.start + promised(number);
        last = Some(tokio::spawn(async move {
            sleep_until(due.into()).await;
            turns.came(number);
        }));
    }
    finish(last).await;
    row("a bare timer each", &turns.lateness(promised));
    println!("  the queue's waited all at once from {asked:.0?} to {SOON:.0?} after the start");
}

/// Waits for the last task, and then for those that may come after it.
async fn finish(last: Option<JoinHandle<()>>) {
    if let Some(last) = last {
        last.await.expect("a task that does not panic");
    }
    sleep(Duration::from_millis(200)).await;
}

fn row(what: &str, lateness: &[i64]) {
    let at = |part: usize| lateness[(lateness.len() - 1) * part / 1_000] as f64 / 1e6;
    let [least, p50, p99, p999, max] = [0, 500, 990, 999, 1_000].map(at);
    println!(
        "  {what:<17} {least:>7.3} ms {p50:>7.3} ms {p99:>7.3} ms {p999:>7.3} ms {max:>7.3} ms"
    );
}

async fn times() {
    println!("\ntime of each waiter to enter, and of each of a random half to leave");
    println!("                    all in one line          in lines of 1,000");
    println!("  waiters   costs      enter      leave      enter      leave");
    for (costs, name) in COSTS {
        for (requests, rounds) in [(1_000, 101), (10_000, 21), (REQUESTS, 5)] {
            // As many waiters in short lines take as much memory: what is left between the two
            // is what a long line costs, and the rest are misses of the processor's caches.
            let [enter, leave] = median_times(costs, 1, requests, rounds).await;
            let [enter_short, leave_short] =
                median_times(costs, requests / 1_000, requests, rounds).await;
            println!(
                "  {requests:>7}   {name:<7} {enter:>5.0} ns {leave:>7.0} ns   {enter_short:>5.0} ns \
                 {leave_short:>7.0} ns"
            );
        }
    }
}

/// The nanoseconds that each takes to enter and to leave, where waiters are dealt out to `lines`.
async fn median_times(costs: u64, lines: u32, requests: u32, rounds: u64) -> [f64; 2] {
    let (mut enter, mut leave) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut random = Random(SEED + round);
        let mut in_turn = Vec::new();
        for _ in 0..lines {
            in_turn.push(line(costs, FAR, Turns::new(0)).await);
        }
        let mut waiting = Vec::with_capacity(requests as usize);
        let start = Instant::now();
        for number in 0..requests {
            let line = &mut in_turn[(number % lines) as usize];
            waiting.push(Some(line.enter(number, &mut random)));
        }
        enter.push(each(start, requests));
        leave.push(leave_half(waiting, &mut random));
    }
    [enter, leave].map(median)
}

/// Drops half of the futures, chosen at random, and returns the nanoseconds that each took.
fn leave_half<F>(mut waiting: Vec<Option<F>>, random: &mut Random) -> f64 {
    let requests = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    let mut leaving = random.shuffled(requests);
    leaving.truncate(leaving.len() / 2);
    let start = Instant::now();
    for &number in &leaving {
        waiting[number] = None;
    }
    each(start, requests / 2)
}

fn each(start: Instant, times: u32) -> f64 {
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_unstable_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
