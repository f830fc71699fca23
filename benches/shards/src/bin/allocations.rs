//! How often decisions and transactions allocate.

#[path = "../ask.rs"]
mod ask;

use tollgate::{Limit, Quota, RateLimiter, SECOND};

use crate::ask::at_once;

const QUOTA: Quota = Quota::token_bucket(1_000_000_000, SECOND);
static HOT: Limit = Limit::new("hot", QUOTA.shards(8));
static LIMITS: [Limit; 8] = [
    Limit::new("a", QUOTA),
    Limit::new("b", QUOTA),
    Limit::new("c", QUOTA),
    Limit::new("d", QUOTA),
    Limit::new("e", QUOTA),
    Limit::new("f", QUOTA),
    Limit::new("g", QUOTA),
    Limit::new("h", QUOTA),
];

fn main() {
    let limiter = RateLimiter::in_memory();
    let one = || drop(at_once(limiter.limit(&LIMITS[0])));
    row("one decision", one);
    row("one decision, 8 shards", || drop(at_once(limiter.limit(&HOT))));
    for count in [1, 2, 3, 8] {
        let (first, rest) = (&LIMITS[0], &LIMITS[1..count]);
        row(&format!("a transaction of {count}"), || {
            let first = limiter.limit(first);
            drop(at_once(rest.iter().fold(first, |call, limit| call.and(limit))));
        });
    }
}

/// Once before, for all buckets to be known.
fn row(what: &str, work: impl Fn()) {
    (0..100).for_each(|_| work());
    let counted = allocation_counter::measure(|| (0..1_000).for_each(|_| work()));
    let each = |total: u64| total as f64 / 1_000.0;
    println!(
        "{what:<24} {:>4.1} allocations, {:>7.1} bytes",
        each(counted.count_total),
        each(counted.bytes_total)
    );
}
