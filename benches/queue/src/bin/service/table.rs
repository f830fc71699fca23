//! The table: what was seen, the ideal, and the one as a multiple of the other.

use std::time::Duration;

use crate::history::History;
use crate::scenario::Scenario;

pub fn heading() {
    println!("{:<44}{:>12}{:>12}{:>9}", "", "seen", "ideal", "ratio");
}

/// Prints what happened in a scenario, and what should have.
pub fn rows(scenario: &Scenario, seen: &History, ideal: &History) {
    println!("{}", scenario.title);
    let both = [seen, ideal];
    if !scenario.leaving.is_empty() {
        count("left while they waited", both.map(|history| history.left.len() as u64));
    }
    let Some(newcomer) = scenario.newcomer else {
        time("the last of them runs at", both.map(|history| history.last_run(None)));
        share("granted tokens that work used", both.map(|history| scenario.share_used(history)));
        return;
    };
    // Otherwise the last are those that ran before the others left.
    let some_stay = scenario.leaving.iter().all(|departure| departure.place.is_some());
    if some_stay {
        time("the last of them runs at", both.map(|history| history.last_run(Some(newcomer))));
    }
    let waiting = |history: &History| history.waiting_before(newcomer) as u64;
    count("waiting when the newcomer comes", both.map(waiting));
    count("tokens in the bucket then", both.map(|history| history.arrival(newcomer).tokens));
    time("the newcomer waits", both.map(|history| history.wait(newcomer)));
    time("the newcomer is answered after", both.map(|history| history.answered_after(newcomer)));
    if some_stay {
        let overtaken = |history: &History| history.overtaken_by(newcomer) as u64;
        count("came before the newcomer and run after it", both.map(overtaken));
    }
}

fn time(what: &str, [seen, ideal]: [Duration; 2]) {
    let [seen, ideal] = [seen, ideal].map(|time| time.as_secs_f64());
    row(what, format!("{seen:.3} s"), format!("{ideal:.3} s"), seen / ideal);
}

fn count(what: &str, [seen, ideal]: [u64; 2]) {
    row(what, seen.to_string(), ideal.to_string(), seen as f64 / ideal as f64);
}

fn share(what: &str, [seen, ideal]: [f64; 2]) {
    let percent = |share| format!("{:.1} %", 100.0 * share);
    row(what, percent(seen), percent(ideal), seen / ideal);
}

/// There is no ratio to an ideal of zero.
fn row(what: &str, seen: String, ideal: String, ratio: f64) {
    let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() };
    println!("  {what:<42}{seen:>12}{ideal:>12}{ratio:>9}");
}
