//! Mixed load over four processes on each shared store, with a fault each minute: every admission is
//! checked by the history checker, and memory, connections and files are shown.
//!
//! `soak [seconds] [seconds between faults]`; an hour and a minute by default.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, sleep_until};
use tollgate::algebra::check_history;
use tollgate::{Limit, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_postgres::Postgres;
use tollgate_redis::Redis;
use tollgate_testing::dice::Dice;
use tollgate_testing::redis::{Mode, Proxy};
use tollgate_testing::{postgres, redis};

const PROCESSES: u64 = 4;
const TASKS: u64 = 4;
const KEYS: u64 = 20;

/// Of each key, few enough that the quadratic checker reads minutes of them.
static LIMITS: [Limit; 3] = [
    Limit::new("bucket", Quota::token_bucket(5, SECOND).capacity(10)),
    Limit::new("window", Quota::fixed_window(8, Duration::from_secs(2))),
    Limit::new("reserved", Quota::token_bucket(4, SECOND).capacity(4).max_reserved(8)),
];

/// One of the processes: prints each answer as it comes, until it is killed or its output is closed.
pub(crate) async fn process(args: &[&str]) {
    let [store, place, nth] = args else { panic!("{args:?}") };
    let nth: u64 = nth.parse().unwrap();
    let limiter = match *store {
        "redis" => RateLimiter::new(Redis::at(*place).connect_lazily().unwrap()),
        _ => RateLimiter::new(Postgres::at(*place).connect().await.unwrap()),
    };
    let tasks = (0..TASKS).map(|task| tokio::spawn(ask(limiter.clone(), nth * TASKS + task)));
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Takes, takes from two limits, waits for reserved tokens, and asks for keys that no request has named.
async fn ask(limiter: RateLimiter, nth: u64) {
    let [bucket, window, reserved] = &LIMITS;
    let mut dice = Dice(nth);
    for call in 0_u64.. {
        let (key, cost) = (dice.below(KEYS), 1 + dice.below(2));
        let one = |limit: &'static Limit| limiter.limit(limit).key(key).cost(cost);
        let ran = match dice.below(4) {
            0 => one(bucket).await.map(|permit| vec![(0, permit.at())]),
            1 => (one(bucket).and(window).key(key).cost(cost).await)
                .map(|permit| vec![(0, permit.at()), (1, permit.at())]),
            2 => match one(reserved).reserve().await {
                Ok(reservation) => Ok(vec![(2, reservation.ready().await.at())]),
                Err(error) => Err(error),
            },
            _ => {
                let new = limiter.limit(bucket).key(format!("new {nth} {call}")).await;
                new.map(|_| Vec::new())
            }
        };
        match ran {
            Ok(ran) => {
                println!("ok");
                for (limit, at) in ran {
                    println!("ran {limit} {key} {} {cost}", at.as_micros());
                }
            }
            Err(error) if error.is_refused() => println!("refused"),
            Err(_) => println!("undecided"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Everything of one store.
struct Soaked {
    name: &'static str,
    server: Server,
    proxy: Proxy,
    children: Vec<Child>,
    told: Arc<Told>,
    /// When the server has lost all buckets.
    losses: Vec<Timestamp>,
    /// The files of the processes and the connections of the server after the first interval.
    first: Option<[u64; 2]>,
}

enum Server {
    Redis(redis::Server),
    Postgres(postgres::Server),
}

/// What the processes have told so far.
#[derive(Default)]
struct Told {
    ran: Mutex<Vec<Run>>,
    counts: [AtomicU64; 3],
}

/// A limit, a key, when it ran, its cost.
type Run = (usize, u64, Timestamp, u64);

impl Told {
    fn read(&self, line: &str) {
        let nth = match line {
            "ok" => 0,
            "refused" => 1,
            "undecided" => 2,
            ran => {
                let numbers = ran.strip_prefix("ran ").expect(ran).split(' ');
                let numbers: Vec<i64> = numbers.map(|number| number.parse().unwrap()).collect();
                let &[limit, key, at, cost] = numbers.as_slice() else { panic!("{ran}") };
                let number = |signed: i64| u64::try_from(signed).unwrap();
                let limit = usize::try_from(limit).unwrap();
                let run = (limit, number(key), Timestamp::from_micros(at), number(cost));
                return self.ran.lock().unwrap().push(run);
            }
        };
        self.counts[nth].fetch_add(1, Ordering::Relaxed);
    }
}

/// Plays both stores at once.
pub(crate) async fn soak(args: &[&str]) {
    let number = |nth: usize, or: u64| args.get(nth).map_or(or, |arg| arg.parse().unwrap());
    let (seconds, every) = (number(0, 3_600), number(1, 60));
    let server = redis::Server::start();
    let proxy = Proxy::before(server.port());
    let url = proxy.url();
    let redis = Soaked::begin("redis", Server::Redis(server), proxy, &url);
    let server = postgres::Server::start();
    let proxy = Proxy::before(server.port());
    let url = server.settings_at(proxy.port());
    let postgres = Soaked::begin("postgres", Server::Postgres(server), proxy, &url);
    println!(
        "| store | seconds | fault before | admitted | refused | no decision | RSS of a process | \
         of the server | files of a process | connections |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    let begun = Instant::now();
    let mut stores = [redis, postgres];
    for nth in 0..usize::try_from(seconds / every).unwrap() {
        sleep(Duration::from_secs(every / 2)).await;
        let [redis, postgres] = &mut stores;
        let (of_redis, of_postgres) = tokio::join!(redis.fault(nth), postgres.fault(nth));
        // The rest is quiet.
        sleep_until(begun + Duration::from_secs(every) * u32::try_from(nth + 1).unwrap()).await;
        for (store, fault) in stores.iter_mut().zip([of_redis, of_postgres]) {
            store.check(begun.elapsed(), fault, Duration::from_secs(every));
        }
    }
}

impl Soaked {
    fn begin(name: &'static str, server: Server, proxy: Proxy, url: &str) -> Self {
        let told = Arc::new(Told::default());
        let children = (0..PROCESSES).map(|nth| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["process", name, url, &nth.to_string()]);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
            let (says, told) = (BufReader::new(child.stdout.take().unwrap()), Arc::clone(&told));
            thread::spawn(move || says.lines().for_each(|line| told.read(&line.unwrap())));
            child
        });
        let children = children.collect();
        Self { name, server, proxy, children, told, losses: Vec::new(), first: None }
    }

    /// The next fault, for some seconds.
    async fn fault(&mut self, nth: usize) -> &'static str {
        const LASTS: Duration = Duration::from_secs(3);
        match (nth % 5, &self.server) {
            (0, Server::Redis(server)) => {
                self.losses.push(now());
                server.kill();
                sleep(LASTS).await;
                server.restart();
                "killed, begins empty"
            }
            (0, Server::Postgres(server)) => {
                server.shut_down();
                sleep(LASTS).await;
                server.restart();
                "shut down, restarted"
            }
            (1, server) => {
                match server {
                    Server::Redis(server) => server.stop(),
                    Server::Postgres(server) => server.stop(),
                }
                sleep(LASTS).await;
                match server {
                    Server::Redis(server) => server.resume(),
                    Server::Postgres(server) => server.resume(),
                }
                "stopped, goes on"
            }
            (2, Server::Redis(server)) => {
                server.command(&["CLIENT", "PAUSE", "3000"]).ok();
                sleep(LASTS).await;
                "paused"
            }
            (2, Server::Postgres(server)) => {
                server.query(
                    "BEGIN; SELECT key FROM tollgate.buckets LIMIT 5 FOR UPDATE; \
                     SELECT pg_sleep(3); COMMIT",
                );
                "five locked rows"
            }
            (nth, _) => {
                self.proxy.set(if nth == 3 { Mode::Cut } else { Mode::Silent });
                sleep(LASTS).await;
                self.proxy.set(Mode::Pass);
                if nth == 3 { "answers are cut" } else { "the network is silent" }
            }
        }
    }

    /// Checks what ran in the last two intervals, and tells how large all is.
    fn check(&mut self, at: Duration, fault: &str, every: Duration) {
        for child in &mut self.children {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "a process of {} has ended: {ended:?}", self.name);
        }
        let mut buckets = BTreeMap::<_, Vec<_>>::new();
        let mut ran = self.told.ran.lock().unwrap();
        let old = now().as_micros() - i64::try_from(2 * every.as_micros()).unwrap();
        ran.retain(|run| run.2.as_micros() >= old);
        for &(limit, key, at, cost) in &*ran {
            let lost = self.losses.iter().filter(|&&lost| lost <= at).count();
            buckets.entry((limit, key, lost)).or_default().push((at, cost));
        }
        assert!(!buckets.is_empty(), "nothing was admitted");
        for ((limit, key, _), runs) in buckets {
            let limit = &LIMITS[limit];
            let violation = check_history(limit.quota(), &runs).unwrap();
            assert!(violation.is_none(), "{} of {key}: {}", limit.name(), violation.unwrap());
        }
        let pids: Vec<u32> = self.children.iter().map(Child::id).collect();
        let largest = |of: fn(u32) -> u64| pids.iter().map(|&pid| of(pid)).max().unwrap();
        let (server, connections) = match &self.server {
            Server::Redis(server) => (server.pid(), server.info("clients", "connected_clients")),
            Server::Postgres(server) => {
                let count = "SELECT count(*) FROM pg_stat_activity WHERE client_port > 0";
                (server.pid(), server.query(count))
            }
        };
        let (files, connections) = (largest(files), connections.parse::<u64>().unwrap());
        let [admitted, refused, undecided] =
            self.told.counts.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
        println!(
            "| {} | {} | {fault} | {admitted} | {refused} | {undecided} | {:.1} MB | {:.1} MB | {files} | {connections} |",
            self.name,
            at.as_secs(),
            megabytes(largest(resident)),
            megabytes(resident(server)),
        );
        let first = *self.first.get_or_insert([files, connections]);
        for (what, first, now) in
            [("files", first[0], files), ("connections", first[1], connections)]
        {
            // All four processes may have begun a connection that the fault had ended.
            assert!(now <= 2 * first + PROCESSES, "{}: {first} {what}, now {now}", self.name);
        }
    }
}

impl Drop for Soaked {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It has ended by itself otherwise.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
}

/// The memory of a process in kilobytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "for a table")]
fn megabytes(kilobytes: u64) -> f64 {
    kilobytes as f64 / 1_024.0
}

fn files(pid: u32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |files| files.count() as u64)
}
