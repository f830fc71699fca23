//! The tables, as the README shows them.

use crate::contestants::name as peer;
use crate::figures::{Figures, Place, Spread, unit};
use crate::works::{MANY_KEYS, TASKS, name};

/// Everything in order.
pub fn print(figures: &Figures) {
    rates(figures);
    ratios(figures);
    costs(figures);
    latencies(figures);
    memory(figures);
    for (Place { work, tasks, keys, peer }, decisions) in figures.all_unexpected() {
        println!(
            "{decisions} decisions of {peer} failed or were wrong: {work}, {tasks} tasks, {keys} keys"
        );
    }
}

/// The rows of throughput: work, tasks and keys.
fn loads() -> impl Iterator<Item = (&'static str, usize, usize)> {
    let admitted = TASKS
        .into_iter()
        .flat_map(|tasks| [1, MANY_KEYS].map(|keys| (name::ADMITTED, tasks, keys)));
    admitted.chain([(name::REFUSED, 64, 1)])
}

fn rates(figures: &Figures) {
    println!("Thousands of decisions a second:\n");
    println!("| work | tasks | keys | {} |", peer::ALL.join(" | "));
    println!("|---|--:|--:|{}", "--:|".repeat(peer::ALL.len()));
    for (work, tasks, keys) in loads() {
        let cells = peer::ALL.map(|peer| {
            let place = Place { work, tasks, keys, peer };
            figure(figures.spread(place, unit::RATE).map(|rate| rate.median / 1_000.0))
        });
        println!("| {work} | {tasks} | {keys} | {} |", cells.join(" | "));
    }
}

fn ratios(figures: &Figures) {
    let peers = [peer::ONE_CALL_EACH, peer::GCRA, peer::LIMITADOR, peer::INCR];
    println!("\nTollgate's decisions a second by theirs, median of the rounds (least to most):\n");
    println!("| work | tasks | keys | {} | aim | reached |", peers.join(" | "));
    println!("|---|--:|--:|{}--:|---|", "---|".repeat(peers.len()));
    for (work, tasks, keys) in loads() {
        let place = |peer| Place { work, tasks, keys, peer };
        let ratio = |theirs| figures.ratio(place(peer::OURS), place(theirs), unit::RATE);
        let cells = peers.map(|theirs| ratio(theirs).map_or("-".to_owned(), spread));
        let (aim, reached) = match (aim(work, tasks), ratio(peer::ONE_CALL_EACH)) {
            (Some(aim), Some(ratio)) if ratio.median >= aim => (format!("{aim:.2}"), "yes"),
            (Some(aim), Some(_)) => (format!("{aim:.2}"), "**no**"),
            (Some(aim), None) => (format!("{aim:.2}"), "-"),
            (None, _) => ("-".to_owned(), "-"),
        };
        let cells = cells.join(" | ");
        println!("| {work} | {tasks} | {keys} | {cells} | {aim} | {reached} |");
    }
}

/// How many times as many decisions batching is to make as a call for each.
fn aim(work: &str, tasks: usize) -> Option<f64> {
    match tasks {
        _ if work != name::ADMITTED => None,
        1 => Some(0.92),
        64 => Some(1.4),
        _ => Some(1.6),
    }
}

fn costs(figures: &Figures) {
    let units = [unit::SERVER_CPU, unit::COMMAND_TIME, unit::CLIENT_CPU, unit::PER_CALL];
    println!("\nWhat a decision costs, {MANY_KEYS} keys:\n");
    println!("| peer | tasks | {} |", units.join(" | "));
    println!("|---|--:|{}", "--:|".repeat(units.len()));
    for peer in peer::ALL {
        for tasks in [1, 64, 1_024] {
            let place = Place { work: name::ADMITTED, tasks, keys: MANY_KEYS, peer };
            let median = |unit| figures.spread(place, unit).map(|spread| spread.median);
            if median(unit::RATE).is_some() {
                let cells = units.map(|unit| figure(median(unit))).join(" | ");
                println!("| {peer} | {tasks} | {cells} |");
            }
        }
    }
}

fn latencies(figures: &Figures) {
    println!("\nLatency at half of its own throughput with 64 tasks, {MANY_KEYS} keys:\n");
    println!("| peer | {} | {} | {} |", unit::RATE, unit::P50, unit::P99);
    println!("|---|--:|--:|--:|");
    for peer in peer::ALL {
        let place = Place { work: name::LATENCY, tasks: 64, keys: MANY_KEYS, peer };
        let median = |unit| figures.spread(place, unit).map(|spread| spread.median);
        if median(unit::P50).is_some() {
            let cells = [unit::RATE, unit::P50, unit::P99].map(|unit| figure(median(unit)));
            println!("| {peer} | {} |", cells.join(" | "));
        }
    }
}

fn memory(figures: &Figures) {
    println!("\nMemory of the server:\n");
    println!("| peer | {} | {} |", unit::BYTES, unit::BYTES_OF_ONE);
    println!("|---|--:|--:|");
    for place in figures.places(name::MEMORY) {
        let median = |unit| figure(figures.spread(place, unit).map(|spread| spread.median));
        println!("| {} | {} | {} |", place.peer, median(unit::BYTES), median(unit::BYTES_OF_ONE));
    }
    println!();
}

fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn spread(ratio: Spread) -> String {
    let Spread { least, median, most } = ratio;
    format!("{median:.2} ({least:.2} to {most:.2})")
}
