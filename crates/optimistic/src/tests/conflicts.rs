//! Many callers on one bucket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use super::{CasMap, CasState, Faults, backend_error, on};
use crate::{Optimistic, Swap, SwapStore};
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_conformance::dice::Dice;
use tollgate_conformance::history::START;

/// Time stands still, so a bucket has exactly its capacity.
static HOARD: Limit = Limit::new("hoard", Quota::token_bucket(100, DAY));

const THREADS: u64 = 16;

/// Lets 16 threads take from so many keys until each has refused, and returns what all were given.
fn hammer(keys: u64) -> u64 {
    // A call waits for others, and a machine may be slow.
    let (map, store) = on(CasMap::<true> { hesitates: true, ..CasMap::default() });
    let store = store.clock(ManualClock::new(START)).deadline(HOUR).tries(u32::MAX);
    let (admitted, barrier) = (Arc::new(AtomicU64::new(0)), Arc::new(Barrier::new(16)));
    let threads: Vec<_> = (0..THREADS)
        .map(|nth| {
            let (admitted, barrier) = (Arc::clone(&admitted), Arc::clone(&barrier));
            // Limiters of their own, like those of other processes.
            let limiter = RateLimiter::new(store.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                barrier.wait();
                runtime.unwrap().block_on(async {
                    for key in (0..keys).map(|key| (key + nth * keys / THREADS) % keys) {
                        loop {
                            match limiter.limit(&HOARD).key(key).cost(1 + nth % 3).await {
                                Ok(_permit) => admitted.fetch_add(1 + nth % 3, Ordering::Relaxed),
                                Err(error) if error.is_refused() => break,
                                Err(error) => panic!("{error}"),
                            };
                        }
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(map.state.lock().unwrap().values.len() as u64, keys);
    admitted.load(Ordering::Relaxed)
}

#[test]
fn sixteen_threads_on_one_key_are_admitted_exactly_the_capacity() {
    assert_eq!(hammer(1), 100);
}

#[test]
fn sixteen_threads_on_a_thousand_keys_are_admitted_exactly_the_capacity_of_each() {
    assert_eq!(hammer(1_000), 100_000);
}

/// Before such calls took turns, each that succeeded made all others start over, and some failed at
/// their deadline.
#[tokio::test(start_paused = true)]
async fn a_hundred_calls_at_once_on_one_key_take_turns() {
    let (map, store) = on(CasMap::<true> { hesitates: true, ..CasMap::default() });
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
    let calls = (0..100).map(|_| limiter.limit(&HOARD).key("a").into_future());
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok));
    // All but one meet once.
    assert_eq!(map.counts(), [199, 199]);
    assert!(limiter.limit(&HOARD).key("a").await.unwrap_err().is_refused());
}

/// A map on which another call is always faster.
fn storm() -> CasMap<true> {
    let faults = Faults { dice: Dice(1), conflict: 1, failure: u64::MAX, is_made: false };
    let state = CasState { faults: Some(faults), ..CasState::default() };
    CasMap { state: Mutex::new(state), ..CasMap::default() }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_others_are_always_faster_than_fails_and_takes_nothing() {
    let (map, store) = on(storm());
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)).tries(5).deadline(HOUR));
    let other = Limit::new("other", Quota::token_bucket(1, DAY));
    let one = limiter.limit(&HOARD).key("a").await.unwrap_err();
    assert_eq!(map.counts(), [5, 5]);
    let both = limiter.limit(&HOARD).key("a").and(&other).key("a").await.unwrap_err();
    assert_eq!(map.counts(), [15, 10]);
    for error in [one, both] {
        let error = backend_error(&error);
        // A client may cause this by itself, so it must not be admitted as in an outage.
        assert!(error.is_overload() && error.is_timeout() && !error.is_outage(), "{error}");
        assert_eq!(
            error.to_string(),
            "map backend could not decide in 5 tries, as other calls changed the bucket each time \
             (let fewer requests run at once, divide the limit into shards, or allow more tries)"
        );
    }
    assert!(map.state.lock().unwrap().values.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_in_a_storm_of_conflicts() {
    let (map, store) = on(storm());
    let store = store.clock(ManualClock::new(START)).tries(u32::MAX);
    let limiter = RateLimiter::new(store.deadline(SECOND));
    let begun = tokio::time::Instant::now();
    let error = limiter.limit(&HOARD).key("a").await.unwrap_err();
    let error = backend_error(&error);
    assert!(error.is_overload() && !error.is_outage(), "{error}");
    assert_eq!(begun.elapsed(), SECOND);
    // It backs off: after the first tries, for 8 ms on average.
    let [_, swaps] = map.counts();
    assert!((60..600).contains(&swaps), "{swaps}");
    assert!(map.state.lock().unwrap().values.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_an_outage_at_the_deadline() {
    #[derive(Debug)]
    struct Silent;
    impl SwapStore for Silent {
        const NAME: &'static str = "silent";
        async fn load(&self, _: &str) -> Result<Option<Vec<u8>>, tollgate::backend::BackendError> {
            std::future::pending().await
        }
        async fn swap(&self, _: &Swap<'_>) -> Result<bool, tollgate::backend::BackendError> {
            std::future::pending().await
        }
    }
    let limiter = RateLimiter::new(Optimistic::new(Silent));
    let begun = tokio::time::Instant::now();
    let error = limiter.limit(&HOARD).key("a").await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_millis(50));
    let error = backend_error(&error);
    assert!(error.is_timeout() && error.is_outage());
    assert_eq!(error.to_string(), "silent backend could not decide within 50 ms");
}
