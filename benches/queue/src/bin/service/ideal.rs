//! The ideal: a first-in-first-out queue on the bucket, over a network that takes no time.
//!
//! The tokens that the bucket gains and those that settled work gives back go to the head of the
//! queue, which runs as soon as its cost is there. So tokens that come back move every waiter
//! forward, and no request overtakes another.

use std::collections::VecDeque;
use std::time::Duration;

use crate::history::{Arrival, History, Number};
use crate::scenario::{Scenario, Settled};

const TICK: Duration = Duration::from_micros(100);
/// Parts of a token, so many that a bucket gains a whole number of them in each tick.
const PARTS: u64 = 10_000;

/// Plays a scenario tick by tick.
pub fn play(scenario: &Scenario) -> History {
    let mut history = History::default();
    let mut queue: VecDeque<Number> = VecDeque::new();
    let mut returns: VecDeque<(Duration, u64)> = VecDeque::new();
    let mut leaving = scenario.leaving.iter().peekable();
    let mut coming = scenario.requests.iter().enumerate().peekable();
    let capacity = scenario.capacity * PARTS;
    let cost = |number: Number| scenario.requests[number].cost * PARTS;
    let mut free = capacity;
    for tick in 0.. {
        let now = TICK * tick;
        free += scenario.rate;
        while let Some((_, parts)) = returns.pop_front_if(|(due, _)| *due <= now) {
            free += parts;
        }
        while let Some(departure) = leaving.next_if(|departure| departure.at <= now) {
            for leaver in departure.leavers(queue.iter().copied().collect()) {
                history.left.push(leaver);
                if queue.front() == Some(&leaver) {
                    // No more than the next head can use: what was saved up for a larger cost would
                    // let those behind it exceed the limit.
                    free = free.min(capacity.max(queue.get(1).copied().map_or(0, cost)));
                }
                queue.retain(|&waiting| waiting != leaver);
            }
        }
        if queue.is_empty() {
            free = free.min(capacity);
        }
        while let Some((number, _)) = coming.next_if(|(_, job)| job.comes <= now) {
            let tokens = if queue.is_empty() { free / PARTS } else { 0 };
            history.arrivals.push(Arrival { number, at: now, tokens });
            queue.push_back(number);
        }
        while let Some(number) = queue.pop_front_if(|&mut number| cost(number) <= free) {
            free -= cost(number);
            history.runs.push((number, now));
            if scenario.settled != Settled::Never {
                let job = &scenario.requests[number];
                returns.push_back((now + scenario.work, (job.cost - job.actual) * PARTS));
            }
            let answered = now - scenario.requests[number].comes + scenario.work;
            history.answered.push((number, answered));
        }
        if queue.is_empty() && coming.peek().is_none() {
            break;
        }
    }
    history
}
