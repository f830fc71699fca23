//! The answers that callers got, in a table.

use std::time::Duration;

use tollgate_testing::traffic::{Log, Told};

/// The aim: this part of the calls that waited until their deadline had their answer not much later.
const PART: f64 = 0.99;
const AIM: Duration = Duration::from_millis(10);

/// A table that is being printed.
#[derive(Debug)]
pub struct Report {
    deadline: Duration,
    missed: Vec<&'static str>,
}

impl Report {
    pub fn begin(deadline: Duration, tasks: u64) -> Self {
        println!(
            "{tasks} tasks, a deadline of {deadline:?}; lateness of the calls that waited until then"
        );
        println!(
            "{:<28} {:>8} {:>7} {:>7} {:>7}   {:>7} {:>7} {:>7}   {:>8} {:>8}",
            "fault",
            "admitted",
            "refused",
            "late",
            "failed",
            "p50",
            "p99",
            "max",
            "recovery",
            "outage"
        );
        Self { deadline, missed: Vec::new() }
    }

    /// Prints the effects of a fault.
    pub fn row(&mut self, fault: &'static str, log: &Log, recovery: Duration) {
        let counts = [Told::Admitted, Told::Refused, Told::Late, Told::Failed];
        let [admitted, refused, late, failed] = counts.map(|told| log.count(told));
        let took = log.calls.iter().map(|call| call.ended - call.begun);
        let mut lateness: Vec<_> =
            took.filter_map(|took| took.checked_sub(self.deadline)).collect();
        lateness.sort_unstable();
        let at = |part| quantile(&lateness, part);
        if at(PART).is_some_and(|late| late > AIM) {
            self.missed.push(fault);
        }
        let [p50, p99, max] = [0.5, PART, 1.0].map(|part| at(part).map_or("-".to_owned(), ms));
        println!(
            "{fault:<28} {admitted:>8} {refused:>7} {late:>7} {failed:>7}   {p50:>7} {p99:>7} {max:>7}   \
             {:>8} {:>8}",
            ms(recovery),
            ms(outage(log))
        );
    }

    /// Whether the aim was reached.
    pub fn end(self) {
        match self.missed.as_slice() {
            [] => println!("p99 is within {AIM:?} in each"),
            missed => println!("p99 is above {AIM:?} in: {}", missed.join(", ")),
        }
        println!("nothing was taken twice: what the servers hold is what callers were told");
    }
}

fn quantile(sorted: &[Duration], part: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * part).ceil() as usize).copied()
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// The longest time in which no call was admitted.
fn outage(log: &Log) -> Duration {
    let mut admitted: Vec<_> = log
        .calls
        .iter()
        .filter(|call| call.told == Told::Admitted)
        .map(|call| call.ended)
        .collect();
    admitted.sort_unstable();
    let gaps = admitted.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default()
}
