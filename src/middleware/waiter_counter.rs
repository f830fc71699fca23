//! The places of a layer's queue: how many requests wait, and how many of them for each key.
//!
//! # Design
//!
//! A request that has to wait takes a [`WaiterGuard`], which is free again when it is dropped: with
//! the future of the response, whatever that waits for, or when the inner service is called.
//! Requests that do not wait read one number, and take no lock unless so many wait that a key may
//! be over its bound.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::queue::{Queue, QueueRefusal};
use crate::key::Key;

/// Stands for a key of a rule. Two keys that share one by chance, which is one pair in 2^64, share
/// their bound: of hundreds of thousands of waiters, none do.
pub(super) type KeyHash = u64;

/// Those of a request whose waiters are counted: one of each rule that has a key.
pub(super) type KeyHashes = SmallVec<[KeyHash; 2]>;

/// How many requests wait in all services of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct WaiterCounter(Arc<WaiterCounts>);

#[derive(Debug, Default)]
struct WaiterCounts {
    waiting: AtomicUsize,
    /// The keys that have waiters. What is counted here was counted in `taken` before.
    by_key: Mutex<HashMap<KeyHash, usize>>,
    hasher: RandomState,
}

/// A place for one request that waits; free again when it is dropped.
#[derive(Debug)]
pub(super) struct WaiterGuard {
    counts: Arc<WaiterCounts>,
    keys: KeyHashes,
}

impl WaiterCounter {
    /// Stands for the key of a rule, which is given by its position.
    pub(super) fn hash(&self, rule: usize, key: &Key) -> KeyHash {
        self.0.hasher.hash_one((rule, key))
    }

    /// Why one more cannot wait, as far as is known now.
    pub(super) fn check(
        &self,
        queue: &Queue,
        keys: impl FnOnce() -> KeyHashes,
    ) -> Result<(), QueueRefusal> {
        let waiting = self.0.waiting.load(Ordering::Relaxed);
        // No key has more waiters than there are: if that many would not be above the bound, none
        // is.
        match queue.admits(waiting, Some(waiting)) {
            Err(QueueRefusal::KeyAtBound) => {
                let keys = keys();
                queue.admits(waiting, max_waiters_of(&self.0.lock(), &keys))
            }
            known => known,
        }
    }

    /// A place for one more, if there is one.
    pub(super) fn add(&self, queue: &Queue, keys: KeyHashes) -> Result<WaiterGuard, QueueRefusal> {
        let Self(counts) = self;
        // Requests without a key take no lock.
        let mut by_key = (!keys.is_empty()).then(|| counts.lock());
        let held = by_key.as_deref().and_then(|by_key| max_waiters_of(by_key, &keys));
        let mut why = QueueRefusal::Full;
        let increment = |waiting: usize| match queue.admits(waiting, held) {
            Ok(()) => waiting.checked_add(1),
            Err(refusal) => {
                why = refusal;
                None
            }
        };
        let waiting = counts.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment);
        waiting.map_err(|_| why)?;
        if let Some(by_key) = &mut by_key {
            for &key in &keys {
                let held = by_key.entry(key).or_default();
                *held = held.saturating_add(1);
            }
        }
        drop(by_key);
        Ok(WaiterGuard { counts: Arc::clone(counts), keys })
    }
}

impl WaiterCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<KeyHash, usize>> {
        // A panic elsewhere in the holder's thread leaves nothing half done here.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most waiters that one of these keys has.
fn max_waiters_of(by_key: &HashMap<KeyHash, usize>, keys: &[KeyHash]) -> Option<usize> {
    keys.iter().map(|key| by_key.get(key).copied().unwrap_or(0)).max()
}

/// Above this, room for keys is given back when most of it is not used.
const MIN_CAPACITY: usize = 1_024;

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            let mut by_key = self.counts.lock();
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
        // Only now: a key never counts more waiters than there are.
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const QUEUE: Queue = Queue::new(Duration::ZERO).max_waiters(1_000);

    fn take(counter: &WaiterCounter, queue: &Queue, key: u64) -> Result<WaiterGuard, QueueRefusal> {
        counter.add(queue, KeyHashes::from_iter([counter.hash(0, &Key::from(key))]))
    }

    fn keys(counter: &WaiterCounter) -> usize {
        counter.0.lock().len()
    }

    #[test]
    fn a_key_is_forgotten_with_its_last_waiter() {
        let counter = WaiterCounter::default();
        let first = take(&counter, &QUEUE, 1).unwrap();
        let second = take(&counter, &QUEUE, 1).unwrap();
        let other = take(&counter, &QUEUE, 2).unwrap();
        assert_eq!(keys(&counter), 2);
        drop(first);
        assert_eq!(keys(&counter), 2);
        drop(second);
        assert_eq!(keys(&counter), 1);
        drop(other);
        assert_eq!((keys(&counter), counter.0.waiting.load(Ordering::Relaxed)), (0, 0));
    }

    /// Room for as many keys as there ever were would be kept for as long as the layer.
    #[test]
    fn the_room_of_many_keys_is_given_back() {
        let counter = WaiterCounter::default();
        let queue = QUEUE.max_waiters(usize::MAX);
        let all: Vec<_> = (0..50_000).map(|key| take(&counter, &queue, key).unwrap()).collect();
        assert_eq!(keys(&counter), 50_000);
        drop(all);
        assert!(counter.0.lock().capacity() <= 8 * MIN_CAPACITY);
    }

    /// Without a lock, until a key could be over its bound.
    #[test]
    fn no_key_is_looked_at_while_few_wait() {
        let counter = WaiterCounter::default();
        let unseen = || -> KeyHashes { panic!("it need not be known whose request it is") };
        let mut waiting = Vec::new();
        for _ in 0..500 {
            assert_eq!(counter.check(&QUEUE, unseen), Ok(()));
            waiting.push(take(&counter, &QUEUE, 1).unwrap());
        }
        let hashes = |key: u64| KeyHashes::from_iter([counter.hash(0, &Key::from(key))]);
        assert_eq!(counter.check(&QUEUE, || hashes(1)), Err(QueueRefusal::KeyAtBound));
        assert_eq!(take(&counter, &QUEUE, 1).map(drop), Err(QueueRefusal::KeyAtBound));
        assert_eq!(counter.check(&QUEUE, || hashes(2)), Ok(()));
        assert_eq!(counter.check(&QUEUE, KeyHashes::new), Ok(()));
    }

    #[test]
    fn threads_that_take_places_at_once_take_no_more_than_there_are() {
        let (counter, queue) = (WaiterCounter::default(), QUEUE.max_waiters(30));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (counter, queue) = (&counter, &queue);
                scope.spawn(move || {
                    let mut waiting = Vec::new();
                    for round in 0..20_000_u64 {
                        let key = (round + thread) % 3;
                        waiting.extend(match round % 4 {
                            3 => counter.add(queue, KeyHashes::new()),
                            _ => take(counter, queue, key),
                        });
                        assert!(counter.0.waiting.load(Ordering::Relaxed) <= 30);
                        if round % 2 == 1 && !waiting.is_empty() {
                            waiting.swap_remove(usize::try_from(round).unwrap() % waiting.len());
                        }
                    }
                });
            }
        });
        assert_eq!((keys(&counter), counter.0.waiting.load(Ordering::Relaxed)), (0, 0));
    }
}
