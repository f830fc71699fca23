//! Decisions on one hot key, by one thread and by two.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Limit, Quota, RateLimiter, SECOND};

use crate::ask::at_once;
use crate::rounds::{Rounds, each};

const SHARDS: [u32; 4] = [1, 2, 8, 32];
const ROUNDS: usize = 501;
/// Decisions of each thread in a round: few, so that some rounds are over before another program
/// gets a processor.
const DECISIONS: u32 = 5_000;

pub fn run() {
    // Never short, so that every decision is stored.
    let quota = Quota::token_bucket(1_000_000_000, SECOND);
    let cases = SHARDS.map(|shards| {
        let limiter = RateLimiter::in_memory();
        (limiter, Limit::new("hot", quota.shards(shards)))
    });
    // One round of each after the other, so that what else the machine does hits all alike.
    let mut times = SHARDS.map(|_| [Rounds::default(), Rounds::default()]);
    for _ in 0..ROUNDS {
        for ((limiter, limit), times) in cases.iter().zip(&mut times) {
            for (threads, times) in [1, 2].into_iter().zip(times) {
                let took = decide(limiter, limit, threads);
                times.add(each(took, DECISIONS * threads));
            }
        }
    }

    println!("one hot key: nanoseconds from one decision to the next, whichever thread's it is");
    println!("  shards   threads   median (middle half)       quickest tenth   decisions a second");
    for (shards, times) in SHARDS.iter().zip(&times) {
        for (threads, times) in [1, 2].into_iter().zip(times) {
            let (quick, each_second) = (times.quickest(), 1e3 / times.median());
            println!(
                "  {shards:>6}   {threads:>7}   {times}   {quick:>14.0}   {each_second:>6.2} million"
            );
        }
    }
}

/// How long it takes all threads to decide what each has to.
fn decide(limiter: &RateLimiter, limit: &Limit, threads: u32) -> Duration {
    let together = Barrier::new(threads as usize);
    let work = || {
        together.wait();
        let start = Instant::now();
        for _ in 0..DECISIONS {
            let permit = at_once(limiter.limit(limit).key("all-clients"));
            let admitted = black_box(permit).is_ok();
            debug_assert!(admitted);
        }
        (start, Instant::now())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let spans = running.into_iter().filter_map(|thread| thread.join().ok());
        let whole = spans.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        whole.map_or(Duration::ZERO, |(start, end)| end - start)
    })
}
