//! How long a decision takes when there is half as much to do as could be done.

use super::{MANY_KEYS, Plan, name};
use crate::contestants::Entrant;
use crate::figures::{Figures, Place, unit};

/// The throughput that the load is half of.
const TASKS: usize = 64;

pub(super) async fn at_half_load(plan: Plan, entrants: &[Entrant], figures: &mut Figures) {
    eprintln!("latency at half of the throughput with {TASKS} tasks");
    for nth in 0..plan.latency_rounds {
        for turn in 0..entrants.len() {
            let each = &entrants[(turn + nth) % entrants.len()];
            let flood =
                Place { work: name::ADMITTED, tasks: TASKS, keys: MANY_KEYS, peer: each.peer };
            let Some(throughput) = figures.spread(flood, unit::RATE) else { continue };
            let rate = throughput.median / 2.0;
            let latencies = each.drive.arrivals(rate, MANY_KEYS, plan.latency_round).await;
            let place = Place { work: name::LATENCY, ..flood };
            figures.add(place, unit::RATE, rate);
            figures.add(place, unit::P50, latencies.p50);
            figures.add(place, unit::P99, latencies.p99);
            figures.unexpected(place, latencies.unexpected);
        }
    }
}
