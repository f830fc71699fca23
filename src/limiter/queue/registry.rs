//! All queues of a limiter, by their sets of buckets, and the lock around each.
//!
//! # Design
//!
//! A call that returns tokens to some buckets has to find the queues on any subset of these. A
//! bucket that all clients share may be part of thousands of other queues, which it must not visit.
//!
//! So the hash of a set is the *sum* of the hashes of its buckets. For buckets with hashes 3, 5 and
//! 9, the queues on subsets have the hashes 3, 5, 9, 8, 12, 14 and 17: seven look-ups, however many
//! queues there are.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
#[cfg(feature = "memory")]
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;
use std::{mem, thread};

use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ledger::{Ledger, Ledgers};
use super::reserved_slot::QueueBucket;
use super::store_clock::later;
use super::time_slot::StoreEvent;
use super::wait_queue::WaitQueue;
use crate::backend::{Backend, BucketId, Key};
use crate::clock::Timestamp;
use crate::limiter::lock::lock;
use crate::limiter::shared_resets::SharedResets;

/// The queues of one limiter, shared by its clones: one for each set of buckets that has a waiter
/// or a reservation.
#[derive(Debug)]
pub(crate) struct QueueRegistry {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) queues: Mutex<QueueIndex<SharedQueue>>,
    /// The resets of this limiter: no slot that was reserved before one is undone.
    pub(super) resets: Arc<SharedResets>,
    /// What this process has returned to each bucket.
    pub(super) ledgers: Mutex<Ledgers<SharedQueue>>,
    /// The instant after which no request may wait, once the limiter is drained.
    drain_end: watch::Sender<Option<Instant>>,
    next_number: AtomicU64,
}

impl QueueRegistry {
    pub(crate) fn new(backend: Arc<dyn Backend>, resets: Arc<SharedResets>) -> Self {
        let (queues, ledgers, drain_end, next_number) = Default::default();
        Self { backend, queues, resets, ledgers, drain_end, next_number }
    }

    /// The next number of the sequence in which this process receives answers of its store.
    pub(super) fn number(&self) -> u64 {
        // Relaxed: `StoreEvent::is_before` compares the numbers of one thread only, which sees its
        // own additions in order. For all else they only have to differ.
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A reservation that the store made at `at`. This thread has just received the answer.
    pub(super) fn event(&self, at: Timestamp) -> StoreEvent {
        let (thread, heard) = (Some(thread::current().id()), Instant::now());
        StoreEvent { at, number: self.number(), thread, heard }
    }

    /// How many requests of this process wait for a limit with this key, on any shard; how long the
    /// last of them waits; how many have left.
    pub(crate) fn status(&self, limit: &str, key: &Key) -> (usize, Duration, u64) {
        let (queues, now) = (lock(&self.queues).all(), Instant::now());
        let is_of = |part: &QueueBucket| part.limit.name() == limit && part.key == *key;
        let (mut waiting, mut longest, mut left) = (0_usize, Duration::ZERO, 0_u64);
        for queue in queues.iter().filter(|queue| queue.buckets.iter().any(is_of)) {
            let (waiters, wait, leavers) = queue.with(|waiters| waiters.status(now));
            (waiting, longest) = (waiting.saturating_add(waiters), longest.max(wait));
            left = left.saturating_add(leavers);
        }
        (waiting, longest, left)
    }

    /// The queue on these buckets, for a slot that the store has reserved at `now`.
    pub(super) fn queue_for(
        self: &Arc<Self>,
        buckets: Arc<[QueueBucket]>,
        now: Timestamp,
    ) -> Arc<SharedQueue> {
        let heard = Instant::now();
        let queue = {
            let mut queues = lock(&self.queues);
            queues.get(&buckets).unwrap_or_else(|| {
                let queue = Arc::new(SharedQueue::new(self, buckets.clone()));
                queues.insert(buckets, &queue);
                queue
            })
        };
        // `heard` was read before the locks were waited for. A time that includes the wait would
        // show the clocks further apart than they are.
        queue.with(|waiters| waiters.clock.observe(now, heard));
        queue
    }

    /// The instant after which no request may wait, if the limiter is drained, and its changes.
    pub(crate) fn drain_end(&self) -> watch::Receiver<Option<Instant>> {
        self.drain_end.subscribe()
    }

    /// How long a request may still wait, if the limiter is drained.
    pub(crate) fn time_to_drain(&self) -> Option<Duration> {
        let end = *self.drain_end.borrow();
        Some(end?.saturating_duration_since(Instant::now()))
    }

    /// A number that tells this limiter apart from others on the same store.
    #[cfg(feature = "memory")]
    pub(crate) fn id(self: &Arc<Self>) -> Option<NonZeroU64> {
        NonZeroU64::new(u64::try_from(Arc::as_ptr(self).addr()).ok()?)
    }

    /// Lets no request wait for longer than `within`, or beyond an earlier instant that was set
    /// before.
    pub(crate) fn drain(&self, within: Duration) {
        let now = Instant::now();
        let mut end = later(now, within);
        // No waiter is missed: one that enters after this reads the instant itself, and one that
        // entered before is in a queue that is visited.
        self.drain_end.send_modify(|known| {
            end = known.map_or(end, |known| known.min(end));
            *known = Some(end);
        });
        let queues = lock(&self.queues).all();
        for queue in queues {
            queue.with(|waiters| waiters.drain(end, now));
            queue.undo_free_slots();
        }
    }
}

/// One queue and its lock. It lives as long as it has a held slot, a waiter, or an undo without an
/// answer: each of them has a handle, and the registry has none.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(super) backend: Arc<dyn Backend>,
    /// Weak, since the store may hold reservations, and with them this queue.
    pub(super) registry: Weak<QueueRegistry>,
    pub(super) resets: Arc<SharedResets>,
    pub(super) buckets: Arc<[QueueBucket]>,
    /// The ledgers of its buckets, in the same order.
    pub(super) ledgers: Vec<Arc<Mutex<Ledger<Self>>>>,
    waiters: Mutex<WaitQueue>,
}

impl SharedQueue {
    fn new(registry: &Arc<QueueRegistry>, buckets: Arc<[QueueBucket]>) -> Self {
        let (backend, resets) = (Arc::clone(&registry.backend), Arc::clone(&registry.resets));
        let ids = buckets.iter().map(QueueBucket::id);
        let ledgers = ids.map(|id| lock(&registry.ledgers).get(id)).collect();
        let (registry, waiters) = (Arc::downgrade(registry), Mutex::default());
        Self { backend, registry, resets, buckets, ledgers, waiters }
    }

    /// Runs `work` under the lock of the queue. Wakes and drops wakers after the lock is released,
    /// since they may run code that locks the queue again.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut WaitQueue) -> T) -> T {
        let (done, wake, _discard, spent) = {
            let mut waiters = lock(&self.waiters);
            let done = work(&mut waiters);
            let (wake, discard) = (mem::take(&mut waiters.wake), mem::take(&mut waiters.discard));
            (done, wake, discard, mem::take(&mut waiters.spent))
        };
        wake.into_iter().for_each(Waker::wake);
        spent.iter().for_each(|slot| self.end_in_flight(slot));
        done
    }
}

/// The free slots that are left over are spent.
impl Drop for SharedQueue {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            lock(&registry.queues).remove(&self.buckets, self);
        }
        if let Some(kept_by) = self.with(|waiters| {
            waiters.spend_free();
            waiters.kept_by
        }) {
            self.ledgers.iter().for_each(|ledger| lock(ledger).forget(kept_by));
        }
    }
}

/// The queues `Q`, by the sum of the hashes of their buckets' names. Each is kept alive by its
/// waiters alone, and removes itself when it is dropped.
pub(super) struct QueueIndex<Q> {
    queues: HashMap<u64, SameHash<Q>>,
    hasher: RandomState,
}

/// The queues on sets with the same hash: nearly always a single one.
type SameHash<Q> = SmallVec<[(Arc<[QueueBucket]>, Weak<Q>); 1]>;

/// A map with more capacity than this shrinks when seven eighths of it are unused.
const MIN_CAPACITY: usize = 1_024;

/// Up to this many buckets, all subsets are looked up (63 for six). Of more buckets, only each one
/// alone and all together.
const MAX_SUBSET_BUCKETS: usize = 6;

impl<Q> Default for QueueIndex<Q> {
    fn default() -> Self {
        Self { queues: HashMap::new(), hasher: RandomState::new() }
    }
}

impl<Q> QueueIndex<Q> {
    fn hash(&self, buckets: &[QueueBucket]) -> u64 {
        let hashes = buckets.iter().map(|part| self.hasher.hash_one(part.id()));
        // A sum does not depend on the order of the buckets, and that of a larger set is made of
        // those of its parts. Two sets may have one sum, so the sets themselves are compared
        // wherever it matters.
        hashes.fold(0, u64::wrapping_add)
    }

    /// The queue on exactly these buckets, unless it is being dropped.
    pub(super) fn get(&self, buckets: &[QueueBucket]) -> Option<Arc<Q>> {
        let found = self.queues.get(&self.hash(buckets))?;
        found.iter().find(|(known, _)| **known == *buckets)?.1.upgrade()
    }

    pub(super) fn insert(&mut self, buckets: Arc<[QueueBucket]>, queue: &Arc<Q>) {
        let hash = self.hash(&buckets);
        let found = self.queues.entry(hash).or_default();
        // One that is being dropped may be there still.
        found.retain(|(known, _)| *known != buckets);
        found.push((buckets, Arc::downgrade(queue)));
    }

    /// Removes a queue that is being dropped.
    pub(super) fn remove(&mut self, buckets: &[QueueBucket], queue: &Q) {
        let hash = self.hash(buckets);
        let Some(found) = self.queues.get_mut(&hash) else { return };
        // By address: another queue may have been made on the same buckets.
        found.retain(|(_, known)| !std::ptr::eq(known.as_ptr(), queue));
        if found.is_empty() {
            self.queues.remove(&hash);
        }
        // A map gives back no memory by itself. After a rush of clients, each with a queue of its
        // own, the map would keep the memory of all these queues until the process ends.
        if self.queues.capacity() > MIN_CAPACITY && self.queues.len() < self.queues.capacity() / 8 {
            self.queues.shrink_to(MIN_CAPACITY);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Q>> {
        self.queues.values().flatten().filter_map(|(_, queue)| queue.upgrade()).collect()
    }

    /// The queues on subsets of these buckets, as far as `MAX_SUBSET_BUCKETS` allows. If hashes
    /// collide, queues on other buckets are among them.
    pub(super) fn find_subsets(&self, buckets: &[BucketId<'_>]) -> Vec<Arc<Q>> {
        let hashes: SmallVec<[u64; MAX_SUBSET_BUCKETS]> =
            buckets.iter().map(|&id| self.hasher.hash_one(id)).collect();
        let mut sums = Vec::new();
        if hashes.len() <= MAX_SUBSET_BUCKETS {
            for hash in hashes {
                // Each subset so far, once without this bucket and once with it: 2^n - 1 sums in
                // the end.
                let with: Vec<_> = sums.iter().map(|sum: &u64| sum.wrapping_add(hash)).collect();
                sums.push(hash);
                sums.extend(with);
            }
        } else {
            let all = hashes.iter().copied().fold(0, u64::wrapping_add);
            sums.extend(hashes);
            sums.push(all);
        }
        let found = sums.iter().filter_map(|sum| self.queues.get(sum)).flatten();
        found.filter_map(|(_, queue)| queue.upgrade()).collect()
    }
}

impl<Q> fmt::Debug for QueueIndex<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueIndex")
            .field("queues", &self.queues.values().map(|found| found.len()).sum::<usize>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::super::reserved_slot::sort_taken;
    use super::*;
    use crate::algebra::{State, Verdict};
    use crate::backend::{Key, Reading};
    use crate::clock::Timestamp;
    use crate::limiter::Limit;
    use crate::quota::{HOUR, Quota};

    fn bucket(key: u64, rate: u64) -> QueueBucket {
        let limit = Limit::new("limit", Quota::token_bucket(rate, HOUR));
        QueueBucket { limit: Arc::new(limit), key: Key::from(key), shard: 0 }
    }

    fn set(buckets: impl IntoIterator<Item = QueueBucket>) -> Arc<[QueueBucket]> {
        let after = State { value: 0, ts: Timestamp::UNIX_EPOCH };
        let taken = Reading::in_micros(Verdict::Admitted, after, 1, 0);
        let taken = buckets.into_iter().map(|part| (part, taken));
        sort_taken(taken.collect()).0
    }

    #[test]
    fn queues_on_the_same_names_with_other_quotas_are_kept_apart() {
        let mut index = QueueIndex::default();
        let [small, large] = [5, 7].map(|rate| set([bucket(1, rate)]));
        let queues = ["small", "large"].map(Arc::new);
        index.insert(small.clone(), &queues[0]);
        assert!(index.get(&large).is_none());
        index.insert(large.clone(), &queues[1]);
        assert_eq!(index.get(&small).map(|queue| *queue), Some("small"));
        index.remove(&large, &queues[1]);
        assert_eq!((index.get(&large), index.all().len()), (None, 1));
    }

    /// In two queues, the waiters of one would not get what the others give up.
    #[test]
    fn a_bucket_has_one_queue_whichever_way_its_numbers_are_written() {
        let mut index = QueueIndex::default();
        let queue = Arc::new(());
        index.insert(set([bucket(1, 5)]), &queue);
        let limit = Limit::new("limit", Quota::token_bucket(5, HOUR).capacity(5).initial(5));
        let spelled = QueueBucket { limit: Arc::new(limit), ..bucket(1, 5) };
        assert!(index.get(&set([spelled])).is_some());
    }

    /// Plays all sets of seven buckets against queues on all sets of seven buckets.
    #[test]
    fn the_queues_of_all_subsets_are_found_and_no_other() {
        let key = |nth: u32| bucket(u64::from(nth), 5);
        let mut index = QueueIndex::default();
        let queues: Vec<_> = (1_u32..1 << 7).map(Arc::new).collect();
        for queue in &queues {
            let buckets = (0..7).filter(|nth| **queue >> nth & 1 == 1).map(key);
            index.insert(set(buckets), queue);
        }
        for asked in 1_u32..1 << 7 {
            let asked_for: Vec<_> = (0..7).filter(|nth| asked >> nth & 1 == 1).map(key).collect();
            let ids: Vec<_> = asked_for.iter().map(QueueBucket::id).collect();
            let mut found: Vec<_> = index.find_subsets(&ids).iter().map(|queue| **queue).collect();
            found.sort_unstable();
            let subsets: Vec<_> = (1..1 << 7).filter(|one| one & asked == *one).collect();
            let is_few = ids.len() <= MAX_SUBSET_BUCKETS;
            let singles = (0..7).map(|nth| 1 << nth).chain(iter::once(asked));
            assert_eq!(found, if is_few { subsets } else { singles.collect() }, "{asked:b}");
        }
    }

    #[test]
    fn the_memory_of_many_queues_is_given_back() {
        let mut index = QueueIndex::default();
        let sets: Vec<_> = (0..20_000).map(|key| set([bucket(key, 5)])).collect();
        let queues: Vec<_> = sets.iter().map(|_| Arc::new(0_u8)).collect();
        let all = || sets.iter().zip(&queues);
        all().for_each(|(set, queue)| index.insert(set.clone(), queue));
        all().for_each(|(set, queue)| index.remove(set, queue));
        assert!(index.queues.capacity() <= 8 * MIN_CAPACITY);
    }

    /// The destructor of the first may come late.
    #[test]
    fn a_queue_that_is_dropped_does_not_remove_the_one_that_was_made_after_it() {
        let mut index = QueueIndex::default();
        let (buckets, first) = (set([bucket(1, 5)]), Arc::new(1));
        index.insert(buckets.clone(), &first);
        let first = Arc::into_inner(first).unwrap();
        assert!(index.get(&buckets).is_none(), "it is being dropped");
        let second = Arc::new(2);
        index.insert(buckets.clone(), &second);
        index.remove(&buckets, &first);
        assert_eq!(index.get(&buckets), Some(second));
    }
}
