//! How many bytes a key takes, all told.

use std::pin::pin;
use std::task::{Context, Waker};

use tollgate::backend::Memory;
use tollgate::{Key, Limit, MINUTE, Quota, RateLimiter};

static PER_KEY: Limit = Limit::new("per-key", Quota::token_bucket(10, MINUTE));

fn main() {
    println!("bytes a key, the whole store counted");
    for (keys, flood) in [(1_000, 0), (10_000, 0), (100_000, 0), (500_000, 0), (1_000_000, 0)] {
        measure(keys, flood, 2 * keys);
    }
    println!("bytes a key at the bound, after five times as many");
    for keys in [10_000, 100_000, 1_000_000] {
        measure(keys, 4 * keys, keys);
    }
}

fn measure(keys: u64, flood: u64, bound: u64) {
    let mut kept = None;
    let info = allocation_counter::measure(|| {
        let bound = usize::try_from(bound).unwrap_or(usize::MAX);
        let limiter = RateLimiter::new(Memory::new().max_keys(bound));
        for key in 0..keys + flood {
            // As long as a UUID; the store does not care.
            let key = Key::from(format!("00000000-0000-0000-0000-{key:012}"));
            let call = pin!(limiter.limit(&PER_KEY).key(key));
            let _ = call.poll(&mut Context::from_waker(Waker::noop()));
        }
        kept = Some(limiter);
    });
    println!("  {keys:>9} keys: {:>5.1}", info.bytes_current as f64 / keys as f64);
    drop(kept);
}
