//! How long decisions take, and the longest of them, against the number of keys.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tollgate::backend::Memory;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};

static OPEN: Limit = Limit::new("limit", Quota::token_bucket(1_000_000, SECOND));
static SPENT: Limit = Limit::new("spent", Quota::token_bucket(1, HOUR));
static PER_KEY: Limit = Limit::new("per-key", Quota::token_bucket(10, MINUTE));
static BRIEF: Limit = Limit::new("brief", Quota::token_bucket(1_000, SECOND));

fn main() {
    println!("one decision, one hot key, one thread");
    let limiter = RateLimiter::in_memory();
    row("admitted", decisions(2_000_000, |_| ask(&limiter, &OPEN, 7)));
    row("refused", decisions(2_000_000, |_| ask(&limiter, &SPENT, 7)));

    println!("\none decision on a key at random, and the longest; nothing is forgotten");
    for keys in [1_000, 10_000, 100_000, 1_000_000, 4_000_000] {
        // Twice the keys, so that no shard has to make room.
        let limiter = RateLimiter::new(Memory::new().max_keys(2 * count(keys)));
        row(
            &format!("{keys:>9} keys, first use"),
            decisions(keys, |nth| {
                ask(&limiter, &PER_KEY, nth);
            }),
        );
        row(
            &format!("{keys:>9} keys, known"),
            decisions(1_000_000, |nth| {
                ask(&limiter, &PER_KEY, mix(nth) % keys);
            }),
        );
    }

    println!("\na flood of keys that are never seen again, beyond the bound");
    for bound in [10_000, 100_000, 1_000_000] {
        let limiter = RateLimiter::new(Memory::new().max_keys(count(bound)));
        row(
            &format!("{bound:>9} held, up to the bound"),
            decisions(bound, |nth| {
                ask(&limiter, &PER_KEY, nth);
            }),
        );
        row(
            &format!("{bound:>9} held, beyond it"),
            decisions(2_000_000, |nth| {
                ask(&limiter, &PER_KEY, bound + nth);
            }),
        );
    }

    println!("\nkeys that are full again a second after their use, and are dropped in passing");
    for keys in [10_000, 100_000, 1_000_000] {
        let limiter = RateLimiter::new(Memory::new().max_keys(4 * count(keys)));
        let fill = decisions(keys, |nth| ask(&limiter, &BRIEF, nth));
        row(&format!("{keys:>9} come"), fill);
        // Long enough for all of them to be idle; what follows drops them as it goes.
        std::thread::sleep(Duration::from_millis(1_100));
        let forget = decisions(keys, |nth| ask(&limiter, &BRIEF, keys + nth));
        row(&format!("{keys:>9} go while others come"), forget);
    }
}

/// Makes a decision, which in memory never waits.
fn ask(limiter: &RateLimiter, limit: &Limit, key: u64) {
    let call = pin!(limiter.limit(limit).key(key));
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => drop(black_box(decision)),
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}

struct Measured {
    each: Duration,
    p999: Duration,
    longest: Duration,
}

/// Runs `work` this often: once for the mean, and once more for each part, as reading the clock
/// takes time of its own. The longest of many is the operating system's as often as ours.
fn decisions(times: u64, mut work: impl FnMut(u64)) -> Measured {
    let mut laps = Vec::with_capacity(count(times));
    let start = Instant::now();
    let mut last = start;
    for nth in 0..times {
        work(nth);
        let now = Instant::now();
        laps.push(now - last);
        last = now;
    }
    let each = start.elapsed() / u32::try_from(times).unwrap_or(u32::MAX);
    laps.sort_unstable();
    let at = |part: usize| laps.get(laps.len() * part / 100_000).copied().unwrap_or_default();
    Measured { each, p999: at(99_900), longest: laps.last().copied().unwrap_or_default() }
}

fn row(what: &str, Measured { each, p999, longest }: Measured) {
    println!("  {what:<36} mean {each:>10.1?}   p99.9 {p999:>10.1?}   longest {longest:>10.1?}");
}

/// Spreads numbers over all of their range, as a random choice would.
fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
