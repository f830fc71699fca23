//! Several limits in one transaction, against as many decisions one after another.

use std::hint::black_box;
use std::time::Instant;

use tollgate::limiter::LimitCall;
use tollgate::{Limit, Quota, RateLimiter, SECOND};

use crate::ask::at_once;
use crate::rounds::{Rounds, each};

const COUNTS: [usize; 4] = [1, 2, 3, 8];
const ROUNDS: usize = 2_001;
/// Transactions in a round: few, so that most rounds are over before another program gets the
/// processor.
const TIMES: u32 = 1_000;
/// What three limits in one transaction are to cost at most, in single decisions.
const AIM: f64 = 2.2;

/// Never short, so that every decision is stored.
const QUOTA: Quota = Quota::token_bucket(1_000_000_000, SECOND);
/// The limits of one client: its own, that of its tenant, that of all clients, and so on.
static LIMITS: [Limit; 8] = [
    Limit::new("per-client", QUOTA),
    Limit::new("per-tenant", QUOTA),
    Limit::new("all-clients", QUOTA),
    Limit::new("per-route", QUOTA),
    Limit::new("per-plan", QUOTA),
    Limit::new("per-region", QUOTA),
    Limit::new("uploads", QUOTA),
    Limit::new("tokens", QUOTA),
];

/// All of these limits at once, for keys that are numbers.
fn all<'a>(limiter: &'a RateLimiter, limits: &'a [Limit]) -> LimitCall<'a> {
    let (first, rest) = limits.split_first().expect("a limit at least");
    let first = limiter.limit(first).key(0_u64);
    (1..).zip(rest).fold(first, |call, (key, limit)| call.and(limit).key(key))
}

fn limits(count: usize) -> &'static [Limit] {
    &LIMITS[..count]
}

pub fn run() {
    let limiter = RateLimiter::in_memory();
    let mut pairs = COUNTS.map(|_| Vec::new());
    let mut ones = Vec::new();
    for _ in 0..ROUNDS {
        let one = time(|| drop(black_box(at_once(limiter.limit(&LIMITS[0]).key(0_u64)))));
        ones.push(one);
        for (&count, pairs) in COUNTS.iter().zip(&mut pairs) {
            let limits = limits(count);
            let together = time(|| drop(black_box(at_once(all(&limiter, limits)))));
            let apart = time(|| {
                for (key, limit) in (0_u64..).zip(limits) {
                    drop(black_box(at_once(limiter.limit(limit).key(key))));
                }
            });
            pairs.push((together, apart));
        }
    }

    println!("limits asked together in one transaction, and one after another, in nanoseconds");
    println!(
        "  limits   together                  apart                     together / one decision"
    );
    for (count, pairs) in COUNTS.iter().zip(&pairs) {
        let (mut together, mut apart) = (Rounds::default(), Rounds::default());
        let mut to_one = Vec::new();
        for (&(one_together, one_apart), &one) in pairs.iter().zip(&ones) {
            together.add(one_together);
            apart.add(one_apart);
            to_one.push((one_together, one));
        }
        let ratio = Rounds::of_pairs(&to_one);
        println!("  {count:>6}   {together}  {apart}  {ratio:.2}");
        if *count == 3 {
            let reached = if ratio.median() < AIM { "reached" } else { "missed" };
            println!("           the aim of less than {AIM} is {reached}");
        }
    }
}

fn time(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..TIMES {
        work();
    }
    each(start.elapsed(), TIMES)
}
