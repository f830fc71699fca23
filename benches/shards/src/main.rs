//! What shards cost and gain, and what it costs to ask several limits at once.

mod arrivals;
mod ask;
mod contention;
mod parallel;
mod plot;
mod rounds;
mod simulation;
mod transactions;
mod utilisation;

use std::env;

/// Runs all parts, or those that are named.
fn main() {
    let named: Vec<_> = env::args().skip(1).collect();
    let parts: [(&str, fn()); 3] = [
        ("contention", contention::run),
        ("transactions", transactions::run),
        ("utilisation", utilisation::run),
    ];
    for (name, run) in parts {
        if named.is_empty() || named.iter().any(|one| one == name) {
            run();
            println!();
        }
    }
}
