//! The table, as it is printed and as it stands in the README of the benchmark.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::stack::{Call, DEADLINE, Log, RATE};

/// The page, and the lines between which the table stands.
const PAGE: &str = "README.md";
const BEGIN: &str = "<!-- written by benches/faults: begin -->";
const END: &str = "<!-- written by benches/faults: end -->";

/// The aims, which are printed and not asserted.
const LATE: Duration = Duration::from_millis(10);
const OPEN: Duration = Duration::from_millis(1);

#[derive(Default)]
pub struct Table {
    rows: String,
    missed: Vec<String>,
}

impl Table {
    /// Adds what a policy has made of a fault.
    pub fn row(
        &mut self,
        fault: &str,
        loses: bool,
        log: &Log,
        [begun, ended]: [Instant; 2],
        recovery: Duration,
    ) {
        // A momentary fault has its effects soon after it.
        let ended = ended.max(begun + Duration::from_millis(500));
        let during: Vec<_> =
            log.calls.iter().filter(|call| call.begun >= begun && call.begun < ended).collect();
        let mut statuses = Vec::new();
        for status in
            [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE]
        {
            match during.iter().filter(|call| call.status == status).count() {
                0 => {}
                count => statuses.push(format!("{} ({count})", status.as_u16())),
            }
        }
        let waits = during.iter().filter(|call| call.status == StatusCode::SERVICE_UNAVAILABLE);
        let waits: Vec<_> = waits.filter_map(|call| call.retry_after).collect();
        let retry_after = match (waits.iter().min(), waits.iter().max()) {
            (Some(least), Some(most)) if least == most => format!("{least}"),
            (Some(least), Some(most)) => format!("{least} to {most}"),
            _ => "-".to_owned(),
        };
        let [all, open] = [false, true].map(|open| {
            let calls = during.iter().filter(|call| !open || call.found_open);
            let mut took: Vec<_> = calls.map(|call| call.ended - call.begun).collect();
            took.sort_unstable();
            let last = took.len().checked_sub(1)?;
            took.get(last * 99 / 100).copied()
        });
        let longest = during.iter().map(|call| call.ended - call.begun).max();
        let name = format!("{fault}, {}", log.policy);
        if all.is_some_and(|all| all > DEADLINE + LATE) || open.is_some_and(|open| open > OPEN) {
            self.missed.push(name.clone());
        }
        let admitted = log.calls.iter().filter(|call| call.status == StatusCode::OK).count() as u64;
        let allowed = allowed(log, loses);
        let counted = admitted - log.uncounted;
        assert!(counted <= allowed, "{name}: {counted} of {allowed} admitted");
        let uncounted = match log.uncounted {
            0 => String::new(),
            uncounted => format!(" and {uncounted} uncounted"),
        };
        let row = format!(
            "| {fault} | {} | {} | {retry_after} | {} | {} | {} | {counted} of {allowed}{uncounted} | {} |",
            log.policy,
            statuses.join(", "),
            all.map_or("-".to_owned(), ms),
            longest.map_or("-".to_owned(), ms),
            open.map_or("-".to_owned(), ms),
            ms(recovery)
        );
        println!("{row}");
        writeln!(self.rows, "{row}").expect("a string");
    }

    /// Writes the page, if all faults were tried.
    pub fn end(self) {
        match self.missed.as_slice() {
            [] => println!("p99 is within the aims in each"),
            missed => println!("p99 misses an aim in: {}", missed.join("; ")),
        }
        println!("no policy has admitted more than it allows");
        if std::env::args().len() > 1 {
            return;
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let page = fs::read_to_string(&path).expect("the page");
        let (before, rest) = page.split_once(BEGIN).expect("the line before the table");
        let (_, after) = rest.split_once(END).expect("the line after the table");
        let head = "| fault | policy | status | `Retry-After` of a 503 | p99 | longest | p99 once open | admitted | used again after |\n\
                    |---|---|---|---|---|---|---|---|---|\n";
        let page = format!("{before}{BEGIN}\n\n{head}{}\n{END}{after}", self.rows);
        fs::write(&path, page).expect("the page");
    }
}

/// How much the policy allows in all: the capacity and what the limit gains, once more the capacity
/// if the store has forgotten what was taken, and once more for the fallback's switch.
fn allowed(log: &Log, loses: bool) -> u64 {
    let begun = log.calls.iter().map(|call: &Call| call.begun).min();
    let ended = log.calls.iter().map(|call| call.ended).max();
    let time = begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun);
    let capacities = 1 + u64::from(loses) + u64::from(log.policy == "fallback");
    let gain = (RATE as f64 * time.as_secs_f64()).ceil() as u64;
    RATE * capacities + gain
}

fn ms(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        short if short < 10.0 => format!("{short:.2} ms"),
        long => format!("{long:.0} ms"),
    }
}
