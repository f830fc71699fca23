//! Processes that are killed while they decide: what they have acknowledged is in the file.
//!
//! This program is the process that is killed, too: with arguments that say so. So it has a `main`
//! of its own, as `redis_fleet` has.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tollgate::{DAY, Limit, Quota, RateLimiter, Timestamp};
use tollgate_embedded::{Durability, Embedded};
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;

/// It gains its next token in 2216.
static HOARD: Limit = Limit::new("hoard", ERA.capacity(CAPACITY));

const ERA: Quota = Quota::fixed_window(1, DAY.saturating_mul(90_000)).start(Timestamp::UNIX_EPOCH);
const CAPACITY: u64 = 100_000;
const KEYS: u64 = 40;
const TASKS: u64 = 8;

/// A decision takes as long as it takes: a machine may be slow.
const DEADLINE: Duration = Duration::from_secs(60);

type Test = fn(&Runtime);

static TESTS: [(&str, Test); 4] = [
    ("a_process_that_is_killed_while_it_creates_its_file_leaves_none_or_all_of_it", creation),
    ("no_durable_decision_is_lost_when_the_process_is_killed", durable),
    ("no_flushed_decision_is_lost_when_the_process_is_killed", fast),
    ("a_full_disk_is_an_error_and_loses_nothing", full_disk),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [first, path, seed] = args.as_slice()
        && first.starts_with("--process-")
    {
        let (path, seed) = (Path::new(path), seed.parse().unwrap());
        return match &**first {
            "--process-durable" => runtime.block_on(take_durably(path, seed)),
            "--process-create" => {
                say("begins");
                drop(open(path, Durability::Durable));
            }
            "--process-fast" => runtime.block_on(take_fast(path, seed)),
            _ => runtime.block_on(fill(path)),
        };
    }
    if args.iter().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let names: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, test) in &TESTS {
        if names.is_empty() || names.iter().any(|part| name.contains(part.as_str())) {
            let begun = Instant::now();
            test(&runtime);
            println!("test {name} ... ok ({:.1} s)", begun.elapsed().as_secs_f64());
        }
    }
}

fn open(path: &Path, durability: Durability) -> RateLimiter {
    let store = Embedded::at(path).durability(durability).deadline(DEADLINE).open();
    RateLimiter::new(store.unwrap_or_else(|error| panic!("{error}")))
}

/// Tells the parent one thing, in one write.
fn say(line: &str) {
    // The parent may have stopped listening, when it kills this process.
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// Takes tokens in several tasks, and tells the key of each decision that was answered.
async fn take_durably(path: &Path, seed: u64) {
    let limiter = open(path, Durability::Durable);
    let tasks = (0..TASKS).map(|task| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut dice = Dice(seed.wrapping_mul(1_000).wrapping_add(task));
            loop {
                let key = dice.below(KEYS);
                drop(limiter.limit(&HOARD).key(key).await.unwrap());
                say(&key.to_string());
            }
        })
    });
    join_all(tasks).await;
}

/// Takes tokens in one task, and tells when they are on the disk.
async fn take_fast(path: &Path, seed: u64) {
    let store = Embedded::at(path).durability(Durability::Fast).deadline(DEADLINE).open().unwrap();
    let limiter = RateLimiter::new(store.clone());
    let mut dice = Dice(seed);
    loop {
        for _ in 0..dice.below(30) {
            let key = dice.below(KEYS);
            drop(limiter.limit(&HOARD).key(key).await.unwrap());
            say(&key.to_string());
        }
        store.flush().await.unwrap();
        say("flushed");
    }
}

/// Takes a token of one key after the other, until there is no room, and tells how many keys.
async fn fill(path: &Path) {
    let store = Embedded::at(path).deadline(DEADLINE).open().unwrap();
    let limiter = RateLimiter::new(store);
    let once = Limit::new("once", Quota::token_bucket(1, DAY));
    let long = "x".repeat(120);
    for lot in 0..1_000_u64 {
        let keys: Vec<_> =
            (lot * 500..(lot + 1) * 500).map(|nth| format!("{nth}-{long}")).collect();
        let calls = keys.iter().map(|key| limiter.limit(&once).key(key.as_str()).into_future());
        let answers = join_all(calls).await;
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(_permit) => say(key),
                Err(error) => {
                    let text = error.to_string();
                    let source = std::error::Error::source(&error).unwrap().to_string();
                    assert!(error.is_unavailable() && !error.is_outage(), "{text}");
                    assert!(source.starts_with("embedded backend is full: "), "{source}");
                    assert!(source.contains("free some space"), "{source}");
                    // What takes nothing is answered as before.
                    let first = format!("0-{long}");
                    let refused = limiter.limit(&once).key(first.as_str()).await.unwrap_err();
                    assert!(refused.is_refused(), "{refused}");
                    say("full");
                    return;
                }
            }
        }
    }
}

/// A directory of its own for a test, removed afterwards.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn start(kind: &str, path: &Path, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("--process-{kind}")).arg(path).arg(seed.to_string());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Reads so many lines, kills the process, and returns all lines that it had written until then.
fn kill_after(mut child: Child, lines: u64) -> Vec<String> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    for _ in 0..lines {
        assert!(output.read_line(&mut text).unwrap() > 0, "the process ended by itself");
    }
    child.kill().unwrap();
    output.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(str::to_owned).collect()
}

/// What was taken of each key, by the file.
async fn taken(path: &Path) -> BTreeMap<u64, u64> {
    let limiter = open(path, Durability::Durable);
    let mut taken = BTreeMap::new();
    for key in 0..KEYS {
        let left = limiter.peek(&HOARD).key(key).await.unwrap().remaining();
        taken.insert(key, CAPACITY - left);
    }
    taken
}

/// 63 times by default, 504 times with 2,048 cases.
fn creation(runtime: &Runtime) {
    let place = Place::new("creation");
    for seed in seeds(63) {
        let path = place.0.join(format!("{seed}.db"));
        let mut dice = Dice(seed);
        let mut process = start("create", &path, seed);
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        // Some instant from the first system call to the last, on any machine.
        (0..1 << dice.below(22)).for_each(|_| std::hint::spin_loop());
        process.kill().unwrap();
        process.wait().unwrap();
        let taken = runtime.block_on(taken(&path));
        assert!(taken.values().all(|taken| *taken == 0), "seed {seed}: {taken:?}");
    }
}

/// 63 times by default, 504 times with 2,048 cases.
fn durable(runtime: &Runtime) {
    let place = Place::new("durable");
    let mut told = BTreeMap::<u64, u64>::new();
    let (mut kills, mut path) = (0, PathBuf::new());
    for seed in seeds(63) {
        let mut dice = Dice(seed);
        // A new file now and then: it may be killed while it is created.
        if seed % 8 == 0 {
            path = place.0.join(format!("{seed}.db"));
            told.clear();
            kills = 0;
        }
        // At once, or in the midst of its work.
        let lines = if dice.below(6) == 0 { 0 } else { 1 + dice.below(100) };
        for line in kill_after(start("durable", &path, seed), lines) {
            *told.entry(line.parse().unwrap()).or_default() += 1;
        }
        kills += 1;
        let taken = runtime.block_on(taken(&path));
        for (key, count) in &told {
            assert!(taken[key] >= *count, "seed {seed}, key {key}: {taken:?} of {told:?}");
        }
        // Each task may have had one more, of which it was not told.
        let [taken, told] = [&taken, &told].map(|counts| counts.values().sum::<u64>());
        assert!(taken <= told + kills * TASKS, "seed {seed}: {taken} taken, {told} told");
    }
}

fn fast(runtime: &Runtime) {
    let place = Place::new("fast");
    let path = place.0.join("limits.db");
    let mut flushed = BTreeMap::<u64, u64>::new();
    for seed in seeds(12) {
        let mut since = Vec::new();
        for line in kill_after(start("fast", &path, seed), 1 + Dice(seed).below(200)) {
            match line.parse::<u64>() {
                Ok(key) => since.push(key),
                Err(_) => {
                    since.drain(..).for_each(|key| *flushed.entry(key).or_default() += 1);
                }
            }
        }
        let taken = runtime.block_on(taken(&path));
        for (key, count) in &flushed {
            assert!(taken[key] >= *count, "seed {seed}, key {key}: {taken:?} of {flushed:?}");
        }
        // What was on the disk without a flush stays there.
        flushed = taken;
    }
}

/// A process whose files cannot grow beyond 3 MiB.
#[cfg(unix)]
fn full_disk(runtime: &Runtime) {
    let place = Place::new("full");
    let path = place.0.join("limits.db");
    let mut command = Command::new("sh");
    // In units of 512 bytes. Without the trap, the system would end the process.
    command.args(["-c", "trap '' XFSZ; ulimit -f 6144; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).arg("--process-fill").arg(&path).arg("0");
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut keys: Vec<&str> = text.lines().collect();
    assert_eq!(keys.pop(), Some("full"));
    assert!(keys.len() > 500, "{}", keys.len());
    assert!(std::fs::metadata(&path).unwrap().len() <= 3 << 20);
    runtime.block_on(async {
        let limiter = open(&path, Durability::Durable);
        let once = Limit::new("once", Quota::token_bucket(1, DAY));
        for key in &keys {
            assert!(limiter.limit(&once).key(*key).await.unwrap_err().is_refused(), "{key}");
        }
        // It goes on, now that there is room.
        assert!(limiter.limit(&once).key("another").await.is_ok());
    });
}

#[cfg(not(unix))]
fn full_disk(_: &Runtime) {}
