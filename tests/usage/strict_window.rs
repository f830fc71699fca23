//! The table in the guide on choosing: clients of a server that counts requests in a sliding
//! window.

use std::collections::VecDeque;
use std::time::Duration;

use tollgate::algebra::{Verdict, calculate};
use tollgate::{Quota, Timestamp};

use tollgate_testing::START;
use tollgate_testing::dice::Dice;

/// The other side allows so many requests in any so much time.
const ALLOWED: usize = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// The rows of the table in the guide: a limit, and what may run at once, in the long run, and in any
/// window.
fn rows() -> Vec<(Quota, usize, usize)> {
    let guide = include_str!("../../docs/choosing.md");
    let (_, section) = guide.split_once("## Never more than N in any time").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, limit, _, steady, most, _] = cells[..] else { panic!("{row}") };
        let limit = limit.trim_matches('`').parse().unwrap();
        (limit, steady.parse().unwrap(), most.parse().unwrap())
    });
    rows.collect()
}

/// When the requests run of a client that always has one, after a pause in which it had none.
fn runs(quota: Quota, time: Duration) -> Vec<Timestamp> {
    // The pause ends with a fixed window.
    let quota = match quota.kind() {
        tollgate::quota::Kind::FixedWindow => quota.start(START + Duration::from_millis(1)),
        _ => quota,
    };
    let (mut now, mut state, mut runs) = (START, None, Vec::new());
    while now < START + time {
        let one = calculate(&quota, state, now, 1).unwrap();
        if one.verdict() == Verdict::Admitted {
            runs.push(now);
            state = Some(one.state());
        } else {
            now = now + one.wait();
        }
    }
    runs
}

/// How many of these instants, which are sorted, lie within one window at most, its ends included.
fn most_in_any_window(instants: &[Timestamp]) -> usize {
    let within = |(nth, first): (usize, &Timestamp)| {
        instants[nth..].partition_point(|at| at.since(*first) <= WINDOW)
    };
    instants.iter().enumerate().map(within).max().unwrap()
}

#[test]
fn each_limit_of_the_guide_lets_run_what_the_table_says() {
    let rows = rows();
    assert_eq!(rows.len(), 5);
    for (quota, steady, most) in rows {
        let runs = runs(quota, WINDOW * 100);
        // A bucket of one token loses what it gains in the microsecond in which it is full.
        let in_any_window = most_in_any_window(&runs);
        assert!(in_any_window == most || in_any_window + 1 == most, "{quota}: {in_any_window}");
        let in_the_long_run = (runs.len() - usize::try_from(quota.get_capacity()).unwrap()) / 100;
        assert!(in_the_long_run.abs_diff(steady) <= 1, "{quota}: {in_the_long_run}");
    }
}

/// How many of the requests are refused by a side that allows 100 in any 10 seconds, as the way of
/// each takes between nothing and 300 ms.
fn refused(quota: &str, seed: u64) -> usize {
    let mut dice = Dice(seed);
    let mut way = || dice.time(Duration::from_millis(300));
    let runs = runs(quota.parse().unwrap(), WINDOW * 12);
    let mut arrivals: Vec<_> = runs.into_iter().map(|sent| sent + way()).collect();
    arrivals.sort_unstable();
    let (mut counted, mut refused) = (VecDeque::new(), 0);
    for at in arrivals {
        while counted.front().is_some_and(|first: &Timestamp| at.since(*first) >= WINDOW) {
            counted.pop_front();
        }
        if counted.len() < ALLOWED { counted.push_back(at) } else { refused += 1 }
    }
    refused
}

#[test]
fn a_client_that_leaves_something_for_the_way_is_never_refused() {
    let runs_with_refusals = |quota| (0..20).filter(|seed| refused(quota, *seed) > 0).count();
    assert_eq!(runs_with_refusals("99 per 10 seconds, capacity 1"), 20);
    assert_eq!(runs_with_refusals("96 per 10 seconds, capacity 1"), 0);
    assert_eq!(runs_with_refusals("89 per 10 seconds, capacity 1"), 0);
}
