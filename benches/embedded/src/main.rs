//! Decisions a second on the embedded store, by 1, 64 and 256 tasks, beside the bare puts of its
//! database: a transaction for each, as a program has it that does not gather them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redb::{Database, TableDefinition};
use tokio::runtime::{Builder, Runtime};
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_embedded::{Durability, Embedded};

/// It never refuses.
static LIMIT: Limit =
    Limit::new("bench", Quota::token_bucket(1_000_000, SECOND).capacity(1_000_000_000));

const KEYS: u64 = 10_000;
const TABLE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("bare");

fn main() {
    let is_quick = std::env::args().any(|arg| arg == "--quick");
    let (rounds, time) = if is_quick { (3, 200) } else { (7, 1_000) };
    let time = Duration::from_millis(time);
    let dir = std::env::args().nth(1).filter(|arg| !arg.starts_with('-'));
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("tollgate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    println!("| answers | tasks | decisions/s | bare puts/s | ratio (least to most) |");
    println!("|---|--:|--:|--:|---|");
    for durability in [Durability::Durable, Durability::Fast] {
        for tasks in [1, 64, 256] {
            let mut figures = Vec::new();
            for round in 0..rounds {
                let at = |what| dir.join(format!("{what}-{durability:?}-{tasks}-{round}.db"));
                let ours = || decisions(&runtime, &at("ours"), durability, tasks, time);
                let theirs = || puts(&at("bare"), durability, time);
                // The first one changes from round to round.
                figures.push(if round % 2 == 0 {
                    let ours = ours();
                    (ours, theirs())
                } else {
                    let theirs = theirs();
                    (ours(), theirs)
                });
            }
            let ours = median(figures.iter().map(|(ours, _)| *ours));
            let theirs = median(figures.iter().map(|(_, theirs)| *theirs));
            let ratios: Vec<f64> = figures.iter().map(|(ours, theirs)| ours / theirs).collect();
            let least = ratios.iter().copied().fold(f64::MAX, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            println!(
                "| {durability:?} | {tasks} | {ours:.0} | {theirs:.0} | {:.2} ({least:.2} to {most:.2}) |",
                median(ratios.iter().copied())
            );
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn key_of(random: &mut u64) -> u64 {
    // SplitMix64 (Steele, Lea and Flood 2014).
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % KEYS
}

/// Decisions a second.
fn decisions(
    runtime: &Runtime,
    path: &Path,
    durability: Durability,
    tasks: u64,
    time: Duration,
) -> f64 {
    let store = Embedded::at(path).durability(durability).deadline(Duration::from_secs(60));
    let limiter = RateLimiter::new(store.open().unwrap());
    let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (limiter, count, is_over) = (limiter.clone(), count.clone(), is_over.clone());
            runtime.spawn(async move {
                let mut random = task;
                while !is_over.load(Ordering::Relaxed) {
                    let key = key_of(&mut random);
                    drop(limiter.limit(&LIMIT).key(key).await.unwrap());
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let begun = Instant::now();
    std::thread::sleep(time);
    let figure = count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for task in running {
            task.await.unwrap();
        }
    });
    figure
}

/// Puts a second of values as long as a bucket's, each in a transaction of its own.
fn puts(path: &Path, durability: Durability, time: Duration) -> f64 {
    let database = Database::create(path).unwrap();
    let (mut random, mut count, begun) = (1, 0_u64, Instant::now());
    while begun.elapsed() < time {
        let mut transaction = database.begin_write().unwrap();
        if durability == Durability::Fast {
            transaction.set_durability(redb::Durability::None).unwrap();
        }
        let key = format!("bench:n{}", key_of(&mut random));
        transaction.open_table(TABLE).unwrap().insert(key.as_str(), [1; 49].as_slice()).unwrap();
        transaction.commit().unwrap();
        count += 1;
    }
    count as f64 / begun.elapsed().as_secs_f64()
}
