//! Decisions a second of four processes on one leased limit, on a real Redis and a real PostgreSQL,
//! beside four processes with the same limit in memory alone.
//!
//! This program is the processes too: with arguments that say so, it is one of them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_leasing::Leasing;
use tollgate_postgres::Postgres;
use tollgate_redis::Redis;
use tollgate_testing::{postgres, redis};

const PROCESSES: usize = 4;

/// A million tokens a second: most requests of the processes are refused.
static MILLION: Limit =
    Limit::new("million", Quota::token_bucket(1_000_000, SECOND).max_reserved(0));

/// So much that it is never short.
static PLENTY: Limit =
    Limit::new("plenty", Quota::token_bucket(1_000_000_000, SECOND).max_reserved(0));

/// Counts the calls that reach a store.
#[derive(Debug)]
struct Trips<B> {
    inner: B,
    count: Arc<AtomicU64>,
}

impl<B: Backend> Backend for Trips<B> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.inner.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.inner.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.inner.reset(ids)
    }
}

/// What the processes did in a round.
#[derive(Clone, Copy, Default)]
struct Figures {
    decisions: u64,
    admitted: u64,
    trips: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["process", store, url, limit] => process(store, url, limit),
        ["--quick"] => compare(3, 500),
        [] => compare(7, 2_000),
        other => panic!("{other:?} is neither nothing nor --quick"),
    }
}

fn compare(rounds: u64, millis: u64) {
    let (redis, postgres) = (redis::Server::start(), postgres::Server::start());
    let stores = [("redis", redis.url()), ("postgres", postgres.settings())];
    println!(
        "| store | limit | decisions/s | admitted/s | memory alone | ratio (least to most) | trips in 1,000 |"
    );
    println!("|---|---|--:|--:|--:|---|--:|");
    for (store, url) in &stores {
        for limit in [&MILLION, &PLENTY] {
            let mut figures = Vec::new();
            for round in 0..rounds {
                let leased = || fleet(store, url, limit.name(), millis);
                let alone = || fleet("memory", "", limit.name(), millis);
                // The first one changes from round to round.
                figures.push(match round % 2 {
                    0 => {
                        let leased = leased();
                        (leased, alone())
                    }
                    _ => {
                        let alone = alone();
                        (leased(), alone)
                    }
                });
            }
            let seconds = millis as f64 / 1_000.0;
            let a_second = |of: fn(&Figures) -> u64, nth: fn(&(Figures, Figures)) -> Figures| {
                median(figures.iter().map(|pair| of(&nth(pair)) as f64 / seconds))
            };
            let ratios: Vec<f64> = figures
                .iter()
                .map(|(leased, alone)| leased.decisions as f64 / alone.decisions as f64)
                .collect();
            let trips = median(
                figures
                    .iter()
                    .map(|(leased, _)| 1_000.0 * leased.trips as f64 / leased.decisions as f64),
            );
            println!(
                "| {store} | `{}` | {:.2} M | {:.2} M | {:.2} M | {:.2} ({:.2} to {:.2}) | {trips:.4} |",
                limit.quota(),
                a_second(|of| of.decisions, |pair| pair.0) / 1e6,
                a_second(|of| of.admitted, |pair| pair.0) / 1e6,
                a_second(|of| of.decisions, |pair| pair.1) / 1e6,
                median(ratios.iter().copied()),
                ratios.iter().copied().fold(f64::MAX, f64::min),
                ratios.iter().copied().fold(0.0, f64::max),
            );
        }
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Starts the processes, lets them work at the same time, and adds up what they did.
fn fleet(store: &str, url: &str, limit: &str, millis: u64) -> Figures {
    let program = std::env::current_exe().expect("this program");
    let start = |_| {
        let mut command = Command::new(&program);
        command.args(["process", store, url, limit]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process")
    };
    let mut processes: Vec<Child> = (0..PROCESSES).map(start).collect();
    let mut readers: Vec<_> = processes
        .iter_mut()
        .map(|process| BufReader::new(process.stdout.take().expect("its output")))
        .collect();
    let mut line = String::new();
    for reader in &mut readers {
        reader.read_line(&mut line).expect("that it is connected");
    }
    for process in &mut processes {
        let input = process.stdin.as_mut().expect("its input");
        writeln!(input, "{millis}").expect("that it begins");
    }
    let mut all = Figures::default();
    for reader in &mut readers {
        line.clear();
        reader.read_line(&mut line).expect("its figures");
        let mut numbers =
            line.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        all.decisions += next();
        all.admitted += next();
        all.trips += next();
    }
    processes.iter_mut().for_each(|process| drop(process.wait()));
    all
}

/// One process: a task asks as fast as it can.
fn process(store: &str, url: &str, limit: &str) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let count = Arc::new(AtomicU64::new(0));
    let limit = if limit == MILLION.name() { &MILLION } else { &PLENTY };
    let limiter = runtime.block_on(async {
        match store {
            "redis" => leased(Redis::connect(url).await.expect("a server"), &count, limit),
            "postgres" => leased(Postgres::connect(url).await.expect("a server"), &count, limit),
            _ => RateLimiter::new(Memory::new()),
        }
    });
    println!("connected");
    let mut millis = String::new();
    std::io::stdin().read_line(&mut millis).expect("how long");
    let time = Duration::from_millis(millis.trim().parse().expect("a number"));
    // Warms up for a while, so that nodes have their lots.
    let task = async move {
        work(&limiter, limit, time / 4).await;
        let before = count.load(Ordering::Relaxed);
        let mut figures = work(&limiter, limit, time).await;
        figures.trips = count.load(Ordering::Relaxed) - before;
        figures
    };
    let Figures { decisions, admitted, trips } =
        runtime.block_on(runtime.spawn(task)).expect("the task");
    println!("{decisions} {admitted} {trips}");
}

fn leased(inner: impl Backend, count: &Arc<AtomicU64>, limit: &'static Limit) -> RateLimiter {
    let count = Arc::clone(count);
    RateLimiter::new(Leasing::new(Trips { inner, count }).lease(limit))
}

async fn work(limiter: &RateLimiter, limit: &'static Limit, time: Duration) -> Figures {
    let begun = Instant::now();
    let mut figures = Figures::default();
    while begun.elapsed() < time {
        // As many as a server handles between two looks at its sockets.
        for _ in 0..256 {
            figures.decisions += 1;
            figures.admitted += u64::from(limiter.limit(limit).await.is_ok());
        }
        tokio::task::yield_now().await;
    }
    figures
}
