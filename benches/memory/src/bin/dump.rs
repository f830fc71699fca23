//! What it costs to save and to load a store, and how long decisions wait meanwhile.

use std::fs;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::backend::Memory;
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter};

static DAILY: Limit = Limit::new("daily", Quota::token_bucket(100, DAY));
static HOURLY: Limit = Limit::new("hourly", Quota::fixed_window(1_000, HOUR));

fn main() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("tollgate-bench-{}.dump", std::process::id()));
    for keys in [10_000_u64, 100_000, 1_000_000] {
        println!("{keys} keys of two limits");
        let bound = 2 * usize::try_from(keys).unwrap_or(usize::MAX);
        let memory = std::sync::Arc::new(Memory::new().max_keys(bound));
        let limiter = RateLimiter::new(std::sync::Arc::clone(&memory));
        for key in 0..keys {
            ask(&limiter, if key.is_multiple_of(2) { &DAILY } else { &HOURLY }, key);
        }
        let mut dump = Vec::new();
        row(
            "save to memory",
            least(|| {
                dump.clear();
                memory.save(&mut dump)
            })?,
        );
        println!("  {:<36} {:>10.1} bytes", "a key takes", dump.len() as f64 / keys as f64);
        row("save to a file", least(|| memory.save_to(&path))?);
        row(
            "load from a file",
            least(|| Memory::new().max_keys(bound).load_from(&path).map(drop))?,
        );
        let peak = allocation_counter::measure(|| {
            let _ = memory.save(std::io::sink());
        });
        println!("  {:<36} {:>10} bytes", "memory of a save, at most", peak.bytes_max);
        for (what, saves) in [("nothing else", false), ("saves", true)] {
            let (each, most) = decisions(&limiter, keys, || match saves {
                true => drop(memory.save_to(&path)),
                false => thread::sleep(Duration::from_millis(10)),
            });
            println!(
                "  a decision beside {what:<18} mean {each:>8.1?}   99.99 % within {most:>8.1?}"
            );
        }
    }
    drop(fs::remove_file(&path));
    Ok(())
}

/// Half a million decisions, while another thread works without a break.
fn decisions(limiter: &RateLimiter, keys: u64, beside: impl Fn() + Sync) -> (Duration, Duration) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                beside();
            }
        });
        let mut laps = Vec::with_capacity(500_000);
        let begun = Instant::now();
        let mut last = begun;
        for nth in 0..500_000_u64 {
            let key = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
            ask(limiter, if key.is_multiple_of(2) { &DAILY } else { &HOURLY }, key);
            let now = Instant::now();
            laps.push(now - last);
            last = now;
        }
        let each = begun.elapsed() / 500_000;
        over.store(true, Ordering::Release);
        laps.sort_unstable();
        (each, laps.get(laps.len() / 10_000 * 9_999).copied().unwrap_or_default())
    })
}

fn ask(limiter: &RateLimiter, limit: &Limit, key: u64) {
    let call = pin!(limiter.limit(limit).key(key));
    let _ = call.poll(&mut Context::from_waker(Waker::noop()));
}

/// The shortest of five runs.
fn least(mut work: impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        work()?;
        least = least.min(begun.elapsed());
    }
    Ok(least)
}

fn row(what: &str, time: Duration) {
    println!("  {what:<36} {time:>10.1?}");
}
