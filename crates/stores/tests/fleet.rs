//! Four processes with eight tasks each on one real server of Redis, and on one of PostgreSQL: no
//! token is granted twice, and none is lost.
//!
//! This program is the fleet too: with arguments that say so, it is one of the processes. So it has
//! a `main` of its own, which runs the tests that have its argument in their names, or all of them,
//! or lists their names.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tollgate::algebra::check_history;
use tollgate::limiter::{Permit, Reservation};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_postgres::Postgres;
use tollgate_redis::Redis;
use tollgate_testing::dice::Dice;
use tollgate_testing::shared::{Counts, History};
use tollgate_testing::traffic::wait_until;
use tollgate_testing::{postgres, redis};

const PROCESSES: u64 = 4;
const TASKS: u64 = 8;

/// A decision takes as long as it takes: a machine may be slow.
const DEADLINE: Duration = Duration::from_secs(60);

/// The work of all processes of a fleet.
struct Fleet {
    limits: &'static [Limit],
    /// How many keys there are: one, or four times as many as a task asks for. Each is asked for equally often.
    keys: u64,
    /// How often each task asks.
    calls: u64,
    /// The largest cost; the smallest is 1.
    most: u64,
    /// Whether tasks wait for tokens that are short, or leave while they wait.
    reserves: bool,
    /// Whether work that has run gives some of its tokens back.
    settles: bool,
}

static BUCKET: [Limit; 1] = [Limit::new("bucket", Quota::token_bucket(800, SECOND).capacity(40))];
static WINDOW: [Limit; 1] = [Limit::new("window", Quota::fixed_window(8, MS_10).capacity(40))];
static SMALL_BUCKET: [Limit; 1] =
    [Limit::new("small-bucket", Quota::token_bucket(7, SECOND).capacity(3))];
static SMALL_WINDOW: [Limit; 1] =
    [Limit::new("small-window", Quota::fixed_window(2, MS_100).capacity(3))];
static PATIENT_BUCKET: [Limit; 1] =
    [Limit::new("patient-bucket", Quota::token_bucket(2_000, SECOND).capacity(9).max_reserved(40))];
static PATIENT_WINDOW: [Limit; 1] =
    [Limit::new("patient-window", Quota::fixed_window(20, MS_10).max_reserved(40))];
static SETTLED_BUCKET: [Limit; 1] =
    [Limit::new("settled-bucket", Quota::token_bucket(500, SECOND).capacity(9).max_reserved(60))];
static SETTLED_WINDOW: [Limit; 1] = [Limit::new(
    "settled-window",
    Quota::fixed_window(10, MS_20).start(Timestamp::UNIX_EPOCH).max_reserved(60),
)];
static SHARDS: [Limit; 1] =
    [Limit::new("shards", Quota::token_bucket(800, SECOND).capacity(80).shards(4))];
static WINDOW_SHARDS: [Limit; 1] =
    [Limit::new("window-shards", Quota::fixed_window(8, MS_10).capacity(80).shards(4))];
static HOARD: [Limit; 1] = [Limit::new("hoard", Quota::token_bucket(1, MONTH).capacity(1_000))];
static ERA: [Limit; 1] = [Limit::new("era", ERAS.capacity(1_000))];
static TWO: [Limit; 2] = [
    Limit::new("thousand", Quota::token_bucket(1, MONTH).capacity(1_000)),
    Limit::new("seven-hundred", ERAS.capacity(700)),
];
static SLOW: [Limit; 1] = [Limit::new("slow", Quota::token_bucket(1, HOUR).capacity(100))];

const MS_20: Duration = Duration::from_millis(20);
const MS_10: Duration = Duration::from_millis(10);
const MS_100: Duration = Duration::from_millis(100);
const MONTH: Duration = DAY.saturating_mul(30);
/// The next window begins in 2216.
const ERAS: Quota = Quota::fixed_window(1, DAY.saturating_mul(90_000)).start(Timestamp::UNIX_EPOCH);

/// A process is told which of these it belongs to.
static FLEETS: [Fleet; 14] = [
    Fleet { limits: &BUCKET, keys: 1, calls: 60, most: 1, reserves: false, settles: false },
    Fleet { limits: &WINDOW, keys: 1, calls: 60, most: 5, reserves: false, settles: false },
    Fleet {
        limits: &SMALL_BUCKET,
        keys: 400,
        calls: 100,
        most: 3,
        reserves: false,
        settles: false,
    },
    Fleet {
        limits: &SMALL_WINDOW,
        keys: 400,
        calls: 100,
        most: 1,
        reserves: false,
        settles: false,
    },
    Fleet { limits: &PATIENT_BUCKET, keys: 1, calls: 40, most: 4, reserves: true, settles: false },
    Fleet { limits: &PATIENT_WINDOW, keys: 1, calls: 40, most: 1, reserves: true, settles: false },
    Fleet { limits: &SHARDS, keys: 1, calls: 60, most: 1, reserves: false, settles: false },
    Fleet { limits: &WINDOW_SHARDS, keys: 1, calls: 60, most: 6, reserves: false, settles: false },
    Fleet { limits: &HOARD, keys: 1, calls: 40, most: 1, reserves: false, settles: false },
    Fleet { limits: &ERA, keys: 1, calls: 40, most: 1, reserves: false, settles: false },
    Fleet { limits: &TWO, keys: 1, calls: 30, most: 1, reserves: false, settles: false },
    Fleet { limits: &SLOW, keys: 1, calls: 20, most: 1, reserves: false, settles: false },
    Fleet { limits: &SETTLED_BUCKET, keys: 1, calls: 40, most: 4, reserves: true, settles: true },
    Fleet { limits: &SETTLED_WINDOW, keys: 1, calls: 40, most: 4, reserves: true, settles: true },
];

type Test = fn(&Runtime, Store);

static TESTS: [(&str, Test); 9] = [
    ("what_a_fleet_is_admitted_is_within_the_bound", within_the_bound),
    ("what_waits_and_what_goes_away_is_within_the_bound", reservations),
    ("what_is_settled_beside_waiters_is_within_the_bound_and_nothing_is_owed", settlements),
    ("two_processes_that_settle_and_leave_owe_nothing", nothing_is_owed),
    ("the_shards_of_a_limit_are_within_the_bound_of_the_whole", shards),
    ("a_fleet_is_admitted_exactly_the_capacity", exactly_the_capacity),
    ("two_limits_are_taken_from_together_or_not_at_all", all_or_nothing),
    ("a_fleet_that_shares_nothing_is_found_out", shares_nothing),
    ("a_record_with_a_little_too_much_is_found_out", a_little_too_much),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [first, rest @ ..] = args.as_slice()
        && first == "--process"
    {
        let [url, prefix, fleet, process] = rest else { panic!("{rest:?} says too little") };
        let (fleet, process) = (fleet.parse::<usize>().unwrap(), process.parse().unwrap());
        return runtime.block_on(process_of(&FLEETS[fleet], url, prefix, process));
    }
    if args.iter().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let names: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, test) in &TESTS {
        if names.is_empty() || names.iter().any(|part| name.contains(part.as_str())) {
            for store in STORES {
                let begun = Instant::now();
                test(&runtime, store);
                let took = begun.elapsed().as_secs_f64();
                println!("test {name} ({store:?}) ... ok ({took:.1} s)");
            }
        }
    }
}

/// Where the buckets are.
#[derive(Clone, Copy, Debug)]
enum Store {
    Redis,
    Postgres,
}

const STORES: [Store; 2] = [Store::Redis, Store::Postgres];

/// A server without buckets.
enum Server {
    Redis(redis::Server),
    /// The schema is of its own.
    Postgres(&'static postgres::Server, String),
}

impl Server {
    fn start(store: Store) -> Self {
        match store {
            Store::Redis => Self::Redis(redis::Server::start()),
            Store::Postgres => {
                let server = postgres::Server::shared();
                Self::Postgres(server, server.unused_name())
            }
        }
    }

    /// What [`limiter`] connects to.
    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Postgres(server, schema) => format!("{}#{schema}", server.settings()),
        }
    }
}

/// The server plans the functions again for each connection, which takes 0.1 s of a processor.
const TWO_EACH: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// A limiter on the store at this URL.
async fn limiter(url: &str, prefix: &str) -> RateLimiter {
    match url.split_once('#') {
        None => {
            let redis = Redis::at(url).prefix(prefix).deadline(DEADLINE).connect().await;
            RateLimiter::new(redis.unwrap())
        }
        Some((settings, schema)) => {
            let postgres = Postgres::at(settings).schema(schema).prefix(prefix);
            let postgres = postgres.connections(TWO_EACH).deadline(DEADLINE);
            RateLimiter::new(postgres.connect().await.unwrap())
        }
    }
}

/// A limiter whose calls are carried out in the order in which they are made: on one connection.
async fn limiter_in_order(server: &Server, prefix: &str) -> RateLimiter {
    match server {
        Server::Redis(server) => limiter(&server.url(), prefix).await,
        Server::Postgres(server, schema) => {
            let postgres = Postgres::at(server.settings()).schema(schema).prefix(prefix);
            let postgres = postgres.connections(NonZeroUsize::MIN).deadline(DEADLINE);
            RateLimiter::new(postgres.connect().await.unwrap())
        }
    }
}

/// Work that ran: its key, its instant, its cost.
type Run = (u64, Timestamp, u64);

/// Tokens that were returned: to which key, when, and how many.
type Return = Run;

/// One of the processes: asks as fast as it can, and says at the end what was admitted.
async fn process_of(fleet: &'static Fleet, url: &str, prefix: &str, process: u64) {
    let limiter = limiter(url, prefix).await;
    // All of them begin together.
    println!("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).unwrap();
    assert_eq!(go, "go\n");
    let tasks = (0..TASKS).map(|nth| {
        let task = Task { fleet, limiter: limiter.clone(), nth: process * TASKS + nth };
        tokio::spawn(task.run())
    });
    let mut said = String::new();
    for task in tasks.collect::<Vec<_>>() {
        let (ran, returned) = task.await.unwrap();
        for (what, events) in [("ran", ran), ("returned", returned)] {
            for (key, at, tokens) in events {
                said.push_str(&format!("{what} {key} {} {tokens}\n", at.as_micros()));
            }
        }
    }
    said.push_str("done\n");
    std::io::stdout().write_all(said.as_bytes()).unwrap();
}

struct Task {
    fleet: &'static Fleet,
    limiter: RateLimiter,
    nth: u64,
}

impl Task {
    async fn run(self) -> (Vec<Run>, Vec<Return>) {
        let Self { fleet, limiter, nth } = self;
        let (mut dice, mut ran, mut returned) = (Dice(nth), Vec::new(), Vec::new());
        for call in 0..fleet.calls {
            // Each part of the keys is gone through by as many tasks, those of each process in their own order.
            let part = fleet.keys.min(fleet.calls);
            let stride = [1, 3, 7, 9][usize::try_from(nth / TASKS).unwrap()];
            let key = (nth * part + call * stride % part) % fleet.keys;
            let cost = 1 + dice.below(fleet.most);
            let [first, rest @ ..] = fleet.limits else { panic!("a fleet has a limit") };
            let mut call = limiter.limit(first).key(key).cost(cost);
            for limit in rest {
                call = call.and(limit).key(key).cost(cost);
            }
            let permit = match fleet.reserves {
                true => match call.reserve().await {
                    Ok(reservation) => Ok(run_or_leave(reservation, &mut dice).await),
                    Err(refused) => Err(refused),
                },
                false => call.await.map(|permit| Some((permit.into_owned(), false))),
            };
            let permit = match permit {
                Ok(permit) => permit,
                Err(error) => {
                    assert!(error.is_refused(), "{error:?}");
                    None
                }
            };
            let Some((permit, planned)) = permit else { continue };
            ran.push((key, permit.at(), cost));
            // A planned run has not happened yet.
            if fleet.settles && !planned {
                let actual = dice.below(cost + 1);
                let snapshot = permit.settle(actual).await.unwrap();
                returned.push((key, snapshot.at(), cost - actual));
            }
        }
        (ran, returned)
    }
}

/// The permit of a reservation, if its work runs, and whether that is only planned.
async fn run_or_leave(
    reservation: Reservation,
    dice: &mut Dice,
) -> Option<(Permit<'static>, bool)> {
    match dice.below(4) {
        0 => None,
        1 => Some((reservation.keep(), true)),
        2 => Some((reservation.ready().await, false)),
        _ => {
            let patience = dice.time(Duration::from_millis(20));
            timeout(patience, reservation.ready()).await.ok().map(|permit| (permit, false))
        }
    }
}

/// A process that is killed when it is dropped.
struct Process {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Process {
    fn start(server: &Server, prefix: &str, fleet: usize, nth: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--process", &server.url(), prefix]);
        command.args([fleet.to_string(), nth.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let hears = child.stdin.take().unwrap();
        Self { child, says, hears }
    }

    fn until_ready(&mut self) {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }

    fn go(&mut self) {
        self.hears.write_all(b"go\n").unwrap();
    }

    /// All work that ran, and all tokens that were returned.
    fn record(&mut self) -> (Vec<Run>, Vec<Return>) {
        let mut said = String::new();
        self.says.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        let said = said.strip_suffix("done\n").unwrap();
        let event = |line: &str| {
            let mut numbers = line.split(' ').map(|number| number.parse::<i64>().unwrap());
            let mut next = || numbers.next().unwrap();
            let (key, at, cost) = (next(), Timestamp::from_micros(next()), next());
            (u64::try_from(key).unwrap(), at, u64::try_from(cost).unwrap())
        };
        let events = |what| said.lines().filter_map(move |line| line.strip_prefix(what)).map(event);
        (events("ran ").collect(), events("returned ").collect())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended by itself otherwise.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts the processes of a fleet at the same time, each with its prefix, and collects the work
/// that ran.
fn let_loose(server: &Server, fleet: usize, prefix: impl Fn(u64) -> String) -> Vec<Run> {
    recorded(server, fleet, prefix).0
}

/// The same with what came back.
fn recorded(
    server: &Server,
    fleet: usize,
    prefix: impl Fn(u64) -> String,
) -> (Vec<Run>, Vec<Return>) {
    let process = |nth| Process::start(server, &prefix(nth), fleet, nth);
    let mut processes: Vec<_> = (0..PROCESSES).map(process).collect();
    processes.iter_mut().for_each(Process::until_ready);
    processes.iter_mut().for_each(Process::go);
    let (mut ran, mut returned) = (Vec::new(), Vec::new());
    for (one_ran, one_returned) in processes.iter_mut().map(Process::record) {
        ran.extend(one_ran);
        returned.extend(one_returned);
    }
    (ran, returned)
}

/// The same for processes that share the buckets.
fn together(server: &Server, fleet: usize) -> Vec<Run> {
    let_loose(server, fleet, |_| "fleet".to_owned())
}

fn by_key(runs: &[Run]) -> BTreeMap<u64, Vec<(Timestamp, u64)>> {
    let mut keys = BTreeMap::<_, Vec<_>>::new();
    for &(key, at, cost) in runs {
        keys.entry(key).or_default().push((at, cost));
    }
    keys
}

fn tokens(runs: &[(Timestamp, u64)]) -> u64 {
    runs.iter().map(|(_, cost)| cost).sum()
}

/// A fleet with one limit stays within the bound of each key, and is granted the tokens that were
/// saved up.
fn holds(store: Store, fleet: usize) {
    let runs = together(&Server::start(store), fleet);
    let Fleet { limits: [limit, ..], keys, most, .. } = &FLEETS[fleet] else { panic!() };
    let quota = limit.quota();
    let by_key = by_key(&runs);
    assert_eq!(by_key.len() as u64, *keys, "every key is asked for, and has something");
    for (key, ran) in by_key {
        let violation = check_history(quota, &ran).unwrap();
        assert_eq!(violation, None, "{} of {key}", limit.name());
        // No call is refused while there is enough; two shards may be short while others are not.
        let (ran, saved) = (tokens(&ran), quota.get_capacity());
        let least = if quota.get_shards() > 1 { saved / 2 } else { saved };
        assert!(ran + most > least, "{} of {key}: {ran} of {saved} tokens", limit.name());
    }
}

fn within_the_bound(_: &Runtime, store: Store) {
    (0..4).for_each(|fleet| holds(store, fleet));
}

fn reservations(_: &Runtime, store: Store) {
    (4..6).for_each(|fleet| holds(store, fleet));
}

/// Waiters of several processes beside settlements. A settled token may let a waiter run at once, so
/// the bound counts what came back before the end of a window.
fn settlements(runtime: &Runtime, store: Store) {
    for (fleet, limit) in [(12, &SETTLED_BUCKET[0]), (13, &SETTLED_WINDOW[0])] {
        let server = Server::start(store);
        let (ran, returned) = recorded(&server, fleet, |_| "fleet".to_owned());
        let history = History {
            ran: ran.iter().map(|&(_, at, cost)| (at, at, cost)).collect(),
            left: Vec::new(),
            returned: returned.iter().map(|&(_, at, tokens)| (at, tokens)).collect(),
        };
        let leeway = Duration::from_millis(20);
        let [within, before] = [Counts::Within, Counts::Before]
            .map(|counts| history.excess(limit.quota(), counts, leeway));
        assert_eq!(before, 0, "{}", limit.name());
        // One refill of the deepest debt.
        std::thread::sleep(Duration::from_millis(200));
        let owed = runtime.block_on(async {
            let limiter = limiter(&server.url(), "fleet").await;
            limiter.peek(limit).key(0_u64).await.unwrap().tokens().to_f64()
        });
        assert!(owed >= 0.0, "{} owes {owed}", limit.name());
        let returned = tokens(&returned.iter().map(|&(_, at, n)| (at, n)).collect::<Vec<_>>());
        println!(
            "{}: {} requests ran, {returned} tokens came back, {within} above the bound of a window",
            limit.name(),
            ran.len(),
        );
    }
}

/// A process can undo a slot if the other process has not charged the bucket since, whatever the
/// first one has settled meanwhile.
fn nothing_is_owed(runtime: &Runtime, store: Store) {
    static TEN: Limit = Limit::new("ten", Quota::token_bucket(1, HOUR).capacity(10));
    let server = Server::start(store);
    runtime.block_on(async {
        let connect = async || limiter_in_order(&server, "fleet").await;
        let (one, other) = (connect().await, connect().await);
        let left = async || one.peek(&TEN).await.unwrap().tokens().to_f64().round();
        let until = async |tokens| {
            let what = format!("{tokens} tokens are left");
            wait_until(&what, async || left().await == tokens).await;
        };
        let reserve = async |limiter: &RateLimiter, cost| {
            limiter.limit(&TEN).cost(cost).reserve().await.unwrap()
        };
        let first = one.limit(&TEN).cost(5).await.unwrap();
        let second = one.limit(&TEN).cost(5).await.unwrap();
        let gone = [reserve(&one, 4).await, reserve(&one, 6).await];
        first.settle(2).await.unwrap();
        assert_eq!(left().await, -7.0);
        drop(gone);
        until(3.0).await;

        // The other process has charged the bucket in between, so the slot cannot be undone.
        let gone = reserve(&one, 4).await;
        second.settle(3).await.unwrap();
        let others = reserve(&other, 3).await;
        assert_eq!(left().await, -2.0);
        drop(gone);
        // A call of this process behind that: the processes do not race with what they drop.
        assert_eq!(left().await, -2.0);
        drop(others);
        until(1.0).await;
    });
}

fn shards(_: &Runtime, store: Store) {
    (6..8).for_each(|fleet| holds(store, fleet));
}

/// What a limit has left of the tokens that all processes share.
fn left(runtime: &Runtime, server: &Server, limit: &Limit) -> u64 {
    runtime.block_on(async {
        let limiter = limiter(&server.url(), "fleet").await;
        limiter.peek(limit).key(0_u64).await.unwrap().remaining()
    })
}

fn exactly_the_capacity(runtime: &Runtime, store: Store) {
    for (fleet, limit) in [(8, &HOARD[0]), (9, &ERA[0])] {
        let server = Server::start(store);
        assert_eq!(together(&server, fleet).len(), 1_000, "{}", limit.name());
        assert_eq!(left(runtime, &server, limit), 0);
    }
}

fn all_or_nothing(runtime: &Runtime, store: Store) {
    let server = Server::start(store);
    assert_eq!(together(&server, 10).len(), 700);
    assert_eq!(TWO.each_ref().map(|limit| left(runtime, &server, limit)), [300, 0]);
}

/// With buckets of its own in each process, the fleet exceeds the limit, and the check notices.
fn shares_nothing(_: &Runtime, store: Store) {
    let server = Server::start(store);
    let quota = SLOW[0].quota();
    let alone = let_loose(&server, 11, |process| format!("process-{process}"));
    assert_eq!(alone.len(), 400);
    let violation = check_history(quota, &by_key(&alone)[&0]).unwrap().unwrap();
    let ran = violation.split(' ').nth(2).and_then(|tokens| tokens.parse::<f64>().ok());
    assert!(ran.is_some_and(|tokens| tokens >= 101.0), "{violation}");

    let shared = together(&server, 11);
    assert_eq!(shared.len(), 100);
    assert_eq!(check_history(quota, &by_key(&shared)[&0]).unwrap(), None);
}

/// One token too much at an instant at which work ran, anywhere in a record.
fn a_little_too_much(_: &Runtime, store: Store) {
    let server = Server::start(store);
    for fleet in [0, 1] {
        let quota = FLEETS[fleet].limits[0].quota();
        let ran = by_key(&together(&server, fleet)).remove(&0).unwrap();
        assert_eq!(check_history(quota, &ran).unwrap(), None);
        // The most that may run at one instant: the saved tokens and the gain of one step.
        let step =
            if quota.kind() == tollgate::quota::Kind::FixedWindow { quota.rate() } else { 0 };
        let bound = quota.get_capacity() + step;
        for nth in [0, ran.len() / 2, ran.len() - 1] {
            let (at, cost) = ran[nth];
            let mut more = ran.clone();
            // In pieces: one above the capacity would raise the bound.
            let most = (bound + 1 - cost).min(quota.get_capacity());
            more.extend([(at, most), (at, bound + 1 - cost - most)]);
            let violation = check_history(quota, &more).unwrap();
            assert!(violation.is_some(), "{} at {at:?}", FLEETS[fleet].limits[0].name());
        }
    }
}
