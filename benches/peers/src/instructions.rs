//! A second opinion that no other program on the machine disturbs: instructions, counted.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

use http::StatusCode;
use tollgate::fields::Dialect;

use crate::keys::{Name, all, at_random};
use crate::peers::layers::{self, Inner, Layered, Requests, connect_info};
use crate::peers::{self, Allowance, name as who};
use crate::rounds::{Contest, Figures};
use crate::works::layer::answer;

const KEYS: usize = 100_000;
const TIMES: u32 = 20_000;

/// What can be repeated, and by whom.
const LOOPS: &[(&str, &str)] = &[
    ("hot", who::OURS),
    ("hot-governor", who::GOVERNOR),
    ("refused", who::OURS),
    ("refused-governor", who::GOVERNOR),
    ("many", who::OURS),
    ("many-governor", who::GOVERNOR),
    ("layer", who::OURS),
    ("layer-fields", who::OURS),
    ("layer-governor", who::TOWER_GOVERNOR),
    ("layer-bare", who::BARE),
    ("refusal", who::OURS),
    ("refusal-governor", who::TOWER_GOVERNOR),
];

/// Does one work so often; `false` if there is none of this name.
pub fn repeat(name: &str, times: u32) -> bool {
    let (open, spent, daily) = (Allowance::OPEN, Allowance::SPENT, Allowance::DAILY);
    match name {
        "hot" => decide(peers::ours(open, 1), 1, times),
        "hot-governor" => decide(peers::governor(open), 1, times),
        "refused" => decide(peers::ours(spent, 1), 1, times),
        "refused-governor" => decide(peers::governor(spent), 1, times),
        "many" => decide(peers::ours(daily, KEYS), KEYS, times),
        "many-governor" => decide(peers::governor(daily), KEYS, times),
        "layer" => ask(layers::ours(open, Dialect::None, 1), StatusCode::OK, times),
        "layer-fields" => ask(layers::ours(open, Dialect::default(), 1), StatusCode::OK, times),
        "layer-governor" => ask(layers::tower_governor(open), StatusCode::OK, times),
        "layer-bare" => ask(Inner, StatusCode::OK, times),
        "refusal" => {
            let service = layers::ours(spent, Dialect::default(), 1);
            ask(service, StatusCode::TOO_MANY_REQUESTS, times);
        }
        "refusal-governor" => {
            ask(layers::tower_governor(spent), StatusCode::TOO_MANY_REQUESTS, times);
        }
        _ => return false,
    }
    true
}

fn decide(mut contender: impl FnMut(&Ipv4Addr) -> bool, count: usize, times: u32) {
    for key in all(count) {
        contender(&key);
    }
    let picks = at_random::<Ipv4Addr>(count, times as usize);
    measured_decisions(&mut contender, &picks);
}

/// By this name a profiler tells what is measured from what comes before.
#[inline(never)]
fn measured_decisions<K: Name>(contender: &mut impl FnMut(&K) -> bool, picks: &[K]) {
    for key in picks {
        std::hint::black_box(contender(key));
    }
}

fn ask(mut service: impl Layered, wanted: StatusCode, times: u32) {
    let client = [Ipv4Addr::new(203, 0, 113, 7)];
    let mut requests = Requests::from(&client, connect_info);
    if wanted != StatusCode::OK {
        layers::drive(&mut service, requests.take(2), StatusCode::OK);
    }
    warm(&mut service, &mut requests, wanted);
    answer(&mut service, &mut requests, times as usize, wanted);
}

/// Ours looks closely at the first thousand requests for mistakes in the set-up: by another way than
/// the measured ones, so that these are not counted.
fn warm(service: &mut impl Layered, requests: &mut Requests, wanted: StatusCode) {
    for request in requests.take(2_000) {
        assert_eq!(layers::answer(service, request), wanted);
    }
}

/// Counts the instructions of each work under valgrind, and nothing of what comes before it.
///
/// # Errors
///
/// If valgrind is missing (Debian: `apt-get install valgrind`) or fails.
pub fn count(results: &Path) -> io::Result<()> {
    let mut lines = Figures::CSV_HEAD.to_owned();
    for &(name, who) in LOOPS {
        let mut contest = Contest::new(format!("instructions-{name}"), "instructions each");
        let each = collected(name, TIMES)? / f64::from(TIMES);
        contest.enter(who, move || each);
        lines.extend(contest.run(1).iter().map(Figures::csv));
    }
    fs::write(results.join("instructions.csv"), lines)
}

fn collected(name: &str, times: u32) -> io::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--toggle-collect=*measured_decisions*", "--toggle-collect=*layers::drive*"])
        .arg(env::current_exe()?)
        .args(["loop", name, &times.to_string()])
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("valgrind: {error}")))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    count.ok_or_else(|| io::Error::other(format!("valgrind said nothing of instructions: {text}")))
}
