//! Counts the waiters of a layer's queue, in total and for each key.
//!
//! # Design
//!
//! A request that has to wait holds a [`WaiterGuard`]. Dropping the guard ends the count: with the
//! future of the response, or when the inner service is called. A request that need not wait reads
//! one number. It takes the lock only if so many requests wait that a key may be at its bound.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::StatusCode;
use smallvec::SmallVec;

use super::queue::Queue;
use crate::key::Key;
use crate::limiter::lock;

/// The hash of a rule's position and a key. Two keys with the same hash share one bound. That is
/// one pair in 2^64, so it does not happen among hundreds of thousands of waiters.
pub(super) type KeyHash = u64;

/// The hashes of a request: one for each rule with a key.
pub(super) type KeyHashes = SmallVec<[KeyHash; 2]>;

/// The number of requests that wait, in all services of a layer together.
#[derive(Debug, Default)]
pub(super) struct WaiterCounter {
    waiting: AtomicUsize,
    /// The waiters of each key that has any. A waiter is counted in `waiting` before it is counted
    /// here, so no key has more than `waiting`.
    by_key: Mutex<HashMap<KeyHash, usize>>,
    hasher: RandomState,
}

/// Counts one request as a waiter until it is dropped.
#[derive(Debug)]
pub(super) struct WaiterGuard {
    counter: Arc<WaiterCounter>,
    keys: KeyHashes,
}

impl WaiterCounter {
    /// Hashes a key of the rule at this position.
    pub(super) fn hash(&self, rule: usize, key: &Key) -> KeyHash {
        self.hasher.hash_one((rule, key))
    }

    /// Whether one more request may wait, as far as is known now. Does not count it.
    pub(super) fn check(
        &self,
        queue: &Queue,
        keys: impl FnOnce() -> KeyHashes,
    ) -> Result<(), StatusCode> {
        // A number of a moment ago suffices: `add` checks again, and counts in the same step.
        let waiting = self.waiting.load(Ordering::Relaxed);
        // No key has more than `waiting` waiters. If a key with that many could have one more, any
        // key can.
        match queue.admits(waiting, Some(waiting)) {
            Err(_) if waiting < queue.max_waiters => {
                let keys = keys();
                queue.admits(waiting, max_waiters_of(&lock(&self.by_key), &keys))
            }
            known => known,
        }
    }

    /// Counts one more waiter, if the queue has room for it.
    pub(super) fn add(
        self: &Arc<Self>,
        queue: &Queue,
        keys: KeyHashes,
    ) -> Result<WaiterGuard, StatusCode> {
        // Requests without a key take no lock.
        // The lock is held until the waiter is counted everywhere. Otherwise two requests of a key
        // at its bound could both pass the check.
        let mut by_key = (!keys.is_empty()).then(|| lock(&self.by_key));
        let held = by_key.as_deref().and_then(|by_key| max_waiters_of(by_key, &keys));
        let mut why = queue.on_full;
        let increment = |waiting: usize| match queue.admits(waiting, held) {
            Ok(()) => waiting.checked_add(1),
            Err(refusal) => {
                why = refusal;
                None
            }
        };
        // Relaxed: the number bounds the queue and guards no other data.
        let waiting = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment);
        waiting.map_err(|_| why)?;
        if let Some(by_key) = &mut by_key {
            for &key in &keys {
                let held = by_key.entry(key).or_default();
                *held = held.saturating_add(1);
            }
        }
        drop(by_key);
        Ok(WaiterGuard { counter: Arc::clone(self), keys })
    }
}

/// The most waiters that one of these keys has.
fn max_waiters_of(by_key: &HashMap<KeyHash, usize>, keys: &[KeyHash]) -> Option<usize> {
    keys.iter().map(|key| by_key.get(key).copied().unwrap_or(0)).max()
}

/// A map of more than this capacity shrinks when most of it is unused.
const MIN_CAPACITY: usize = 1_024;

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            let mut by_key = lock(&self.counter.by_key);
            for key in &self.keys {
                if let Some(held) = by_key.get_mut(key) {
                    *held = held.saturating_sub(1);
                    if *held == 0 {
                        by_key.remove(key);
                    }
                }
            }
            if by_key.capacity() > MIN_CAPACITY && by_key.len() < by_key.capacity() / 8 {
                by_key.shrink_to(MIN_CAPACITY);
            }
        }
        // After the keys: no key may ever count more waiters than `waiting`.
        self.counter.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const QUEUE: Queue = Queue::new(Duration::ZERO).max_waiters(1_000);

    fn add(
        counter: &Arc<WaiterCounter>,
        queue: &Queue,
        key: u64,
    ) -> Result<WaiterGuard, StatusCode> {
        counter.add(queue, KeyHashes::from_iter([counter.hash(0, &Key::from(key))]))
    }

    fn keys(counter: &Arc<WaiterCounter>) -> usize {
        lock(&counter.by_key).len()
    }

    #[test]
    fn a_key_leaves_the_map_with_its_last_waiter() {
        let counter = Arc::<WaiterCounter>::default();
        let first = add(&counter, &QUEUE, 1).unwrap();
        let second = add(&counter, &QUEUE, 1).unwrap();
        let other = add(&counter, &QUEUE, 2).unwrap();
        assert_eq!(keys(&counter), 2);
        drop(first);
        assert_eq!(keys(&counter), 2);
        drop(second);
        assert_eq!(keys(&counter), 1);
        drop(other);
        assert_eq!((keys(&counter), counter.waiting.load(Ordering::Relaxed)), (0, 0));
    }

    /// Without shrinking, a burst of keys would keep its memory for the life of the layer.
    #[test]
    fn the_map_shrinks_after_a_burst_of_keys() {
        let counter = Arc::<WaiterCounter>::default();
        let queue = QUEUE.max_waiters(usize::MAX);
        let all: Vec<_> = (0..50_000).map(|key| add(&counter, &queue, key).unwrap()).collect();
        assert_eq!(keys(&counter), 50_000);
        drop(all);
        assert!(lock(&counter.by_key).capacity() <= 8 * MIN_CAPACITY);
    }

    /// `check` takes no lock until a key could be at its bound.
    #[test]
    fn keys_are_not_counted_while_few_requests_wait() {
        let counter = Arc::<WaiterCounter>::default();
        let unseen = || -> KeyHashes { panic!("the keys of the request are not needed") };
        let mut waiting = Vec::new();
        for _ in 0..500 {
            assert_eq!(counter.check(&QUEUE, unseen), Ok(()));
            waiting.push(add(&counter, &QUEUE, 1).unwrap());
        }
        let hashes = |key: u64| KeyHashes::from_iter([counter.hash(0, &Key::from(key))]);
        assert_eq!(counter.check(&QUEUE, || hashes(1)), Err(StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(add(&counter, &QUEUE, 1).map(drop), Err(StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(counter.check(&QUEUE, || hashes(2)), Ok(()));
        assert_eq!(counter.check(&QUEUE, KeyHashes::new), Ok(()));
    }

    #[test]
    fn threads_that_add_waiters_at_once_stay_within_the_bound() {
        let (counter, queue) = (Arc::<WaiterCounter>::default(), QUEUE.max_waiters(30));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (counter, queue) = (&counter, &queue);
                scope.spawn(move || {
                    let mut waiting = Vec::new();
                    for round in 0..20_000_u64 {
                        let key = (round + thread) % 3;
                        waiting.extend(match round % 4 {
                            3 => counter.add(queue, KeyHashes::new()),
                            _ => add(counter, queue, key),
                        });
                        assert!(counter.waiting.load(Ordering::Relaxed) <= 30);
                        if round % 2 == 1 && !waiting.is_empty() {
                            waiting.swap_remove(usize::try_from(round).unwrap() % waiting.len());
                        }
                    }
                });
            }
        });
        assert_eq!((keys(&counter), counter.waiting.load(Ordering::Relaxed)), (0, 0));
    }
}
