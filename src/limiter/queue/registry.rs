//! All queues of a limiter, and the lock around each.

#[cfg(feature = "memory")]
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;
use std::{mem, thread};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::ledger::{Ledger, Ledgers};
use super::queue_index::QueueIndex;
use super::reserved_slot::QueueBucket;
use super::store_clock::later;
use super::time_slot::StoreEvent;
use super::wait_queue::WaitQueue;
use crate::backend::{Backend, Key};
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
    resets: Arc<SharedResets>,
    /// What this process has returned to each bucket.
    pub(super) ledgers: Mutex<Ledgers<SharedQueue>>,
    /// The instant after which no request may wait, once the limiter is drained.
    drain_deadline: Mutex<Option<Instant>>,
    drained: Notify,
    next_number: AtomicU64,
}

impl QueueRegistry {
    pub(crate) fn new(backend: Arc<dyn Backend>, resets: Arc<SharedResets>) -> Self {
        let (queues, ledgers, drain_deadline, next_number) = Default::default();
        let drained = Notify::new();
        Self { backend, queues, resets, ledgers, drain_deadline, drained, next_number }
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
        let concerned = queues.iter().filter(|queue| {
            queue.buckets.iter().any(|part| part.limit.name() == limit && part.key == *key)
        });
        concerned.fold(
            Default::default(),
            |(count, longest, left): (usize, Duration, u64), queue| {
                let (waiting, until, leavers) = queue.with(|waiters| waiters.status());
                let wait =
                    until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
                (count.saturating_add(waiting), longest.max(wait), left.saturating_add(leavers))
            },
        )
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

    /// The instant after which no request may wait, if the limiter is drained.
    pub(crate) fn drain_instant(&self) -> Option<Instant> {
        *lock(&self.drain_deadline)
    }

    /// How long a request may still wait, if the limiter is drained.
    pub(crate) fn time_to_drain(&self) -> Option<Duration> {
        Some(self.drain_instant()?.saturating_duration_since(Instant::now()))
    }

    /// Completes once [`drain`](Self::drain) has set that instant after this call, or shortened it.
    pub(crate) fn drained(&self) -> Notified<'_> {
        self.drained.notified()
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
        // No waiter is missed: one that enters after this reads the deadline itself, and one that
        // entered before is in a queue that is visited.
        let end = {
            let mut known = lock(&self.drain_deadline);
            let end = later(now, within);
            let end = known.map_or(end, |known| known.min(end));
            *known.insert(end)
        };
        self.drained.notify_waiters();
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
        let (done, wake, _discard) = {
            let mut waiters = lock(&self.waiters);
            let done = work(&mut waiters);
            (done, mem::take(&mut waiters.wake), mem::take(&mut waiters.discard))
        };
        wake.into_iter().for_each(Waker::wake);
        done
    }
}

/// The free slots that are left over are spent.
impl Drop for SharedQueue {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            lock(&registry.queues).remove(&self.buckets, self);
        }
        if let Some(kept_by) = self.with(|waiters| waiters.kept_by) {
            self.ledgers.iter().for_each(|ledger| lock(ledger).forget(kept_by));
        }
    }
}
