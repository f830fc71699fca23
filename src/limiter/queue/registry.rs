//! All queues of a limiter, and the lock around each.

#[cfg(feature = "memory")]
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::bucket_set::BucketSet;
use super::ledger::{Ledger, Ledgers, lock};
use super::local_instant::{Epoch, LocalInstant};
use super::queue_index::QueueIndex;
use super::queue_retention::QueueRetention;
use super::time_slot::StoreEvent;
use super::wait_queue::{WaitQueue, WaitStatus};
use super::wakers::Wakers;
use crate::algebra::Units;
use crate::backend::{Backend, BucketId, Key};
use crate::clock::Timestamp;

/// The queues of one limiter, shared by its clones: one for each set of buckets that has a waiter
/// or a reservation.
#[derive(Debug)]
pub(crate) struct QueueRegistry {
    pub(super) backend: Arc<dyn Backend>,
    queues: Mutex<QueueIndex<SharedQueue>>,
    /// What this process has returned to each bucket.
    pub(super) ledgers: Ledgers<SharedQueue>,
    /// The queues without waiters that are kept for their free slots.
    pub(super) retention: QueueRetention<SharedQueue>,
    /// The instant after which no request may wait, once the limiter is drained.
    drain_deadline: Mutex<Option<LocalInstant>>,
    drained: Notify,
    epoch: Epoch,
    next_number: AtomicU64,
}

impl QueueRegistry {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let (queues, ledgers, retention) = Default::default();
        let (drain_deadline, drained, epoch, next_number) =
            (Mutex::default(), Notify::new(), Epoch::new(), AtomicU64::new(0));
        Self { backend, queues, ledgers, retention, drain_deadline, drained, epoch, next_number }
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The next number of the sequence in which this process receives answers of its store.
    pub(super) fn number(&self) -> u64 {
        // Relaxed: `StoreEvent::is_before` compares the numbers of one thread only, which sees its
        // own additions in order. For all else they only have to differ.
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A reservation that the store made at `at`. This thread has just received the answer.
    pub(crate) fn event(&self, at: Timestamp) -> StoreEvent {
        let (thread, heard) = (Some(thread::current().id()), self.epoch.now());
        StoreEvent { at, number: self.number(), thread, heard }
    }

    /// The most units that this process may have returned to a bucket since a reservation; `None`
    /// if that is no longer known.
    pub(crate) fn returned_since(&self, id: BucketId<'_>, made: &StoreEvent) -> Option<Units> {
        self.ledgers.get(id).returned_since(made)
    }

    /// Records that these buckets are reset: no slot that was reserved before is undone.
    pub(crate) fn forget_returns(&self, ids: &[BucketId<'_>]) {
        ids.iter().for_each(|&id| self.ledgers.get(id).forget());
    }

    /// How many requests of this process wait for a limit with this key, on any shard.
    pub(crate) fn status(&self, limit: &str, key: &Key) -> WaitStatus<Duration> {
        let (queues, now) = (self.all(), self.epoch.now());
        let concerned = queues.iter().filter(|queue| {
            let mut parts = queue.buckets().parts().iter();
            parts.any(|part| part.limit().name() == limit && part.key() == key)
        });
        let none = WaitStatus { waiting: 0, until: None, leavers: 0 };
        concerned.fold(none, |all, queue| {
            let one = queue.with(|waiters, _| waiters.status());
            let until = one.until.map(|until| until.since(now));
            WaitStatus {
                waiting: all.waiting.saturating_add(one.waiting),
                until: all.until.max(until),
                leavers: all.leavers.saturating_add(one.leavers),
            }
        })
    }

    fn all(&self) -> Vec<Arc<SharedQueue>> {
        lock(&self.queues).all()
    }

    /// The queues on subsets of these buckets: all of them for up to six buckets, and possibly a
    /// few others. See [`QueueIndex::find_subsets`].
    pub(super) fn find_subsets(&self, buckets: &[BucketId<'_>]) -> Vec<Arc<SharedQueue>> {
        lock(&self.queues).find_subsets(buckets)
    }

    /// The queue on these buckets, which counts one more held slot, reserved by the store at `now`.
    pub(super) fn queue_for(
        self: &Arc<Self>,
        buckets: BucketSet,
        now: Timestamp,
    ) -> Arc<SharedQueue> {
        let heard = self.epoch.now();
        let queue = {
            let mut queues = lock(&self.queues);
            let known = queues.get(&buckets).map(Arc::clone);
            let queue = known.unwrap_or_else(|| {
                let queue = Arc::new(SharedQueue::new(self, buckets.clone()));
                queues.insert(buckets, Arc::clone(&queue));
                queue
            });
            // Counted while the registry is locked: `forget` checks the count under the same lock,
            // so it cannot remove this queue in between. The count is an atomic, since the queue
            // itself may be locked for longer work, and other queues must not wait for that.
            queue.held_slots.fetch_add(1, Ordering::AcqRel);
            queue
        };
        // From here on, a reset of the bucket knows that a slot was reserved before it.
        for ledger in &queue.ledgers {
            ledger.record_reservation(now);
        }
        // `heard` was read before the locks were waited for. A time that includes the wait would
        // show the clocks further apart than they are.
        queue.with(|waiters, _| waiters.clock.observe(now, heard));
        queue
    }

    /// Removes a queue, if it has neither a waiter nor a held slot.
    pub(super) fn forget(&self, queue: &SharedQueue) {
        let mut queues = lock(&self.queues);
        let found = queues.get(queue.buckets());
        // By address: the queue may have been forgotten before, and another one made on the same
        // buckets.
        let is_this = found.is_some_and(|found| std::ptr::eq(&raw const **found, queue));
        let forgotten =
            if is_this && queue.is_empty() { queues.remove(queue.buckets()) } else { None };
        // Unlocked before the queue is dropped: it may hold the last handle of the
        // store, and the destructor of that is code of another crate.
        drop(queues);
        if let Some(forgotten) = forgotten {
            forgotten.ledgers.iter().for_each(|ledger| ledger.retries().forget(&forgotten));
        }
    }

    /// The instant after which no request may wait, if the limiter is drained.
    pub(super) fn drain_deadline(&self) -> Option<LocalInstant> {
        *lock(&self.drain_deadline)
    }

    /// The same, by the clock of the runtime.
    pub(crate) fn drain_instant(&self) -> Option<Instant> {
        self.drain_deadline().map(|end| self.epoch.instant(end))
    }

    /// Completes when [`drain`](Self::drain) sets or shortens that instant.
    pub(crate) async fn drained(&self) {
        self.drained.notified().await;
    }

    /// A number that tells this limiter apart from others on the same store.
    #[cfg(feature = "memory")]
    pub(crate) fn id(self: &Arc<Self>) -> Option<NonZeroU64> {
        NonZeroU64::new(u64::try_from(Arc::as_ptr(self).addr()).ok()?)
    }

    /// Lets no request wait beyond `end`, or beyond an earlier instant that was set before. Returns
    /// the instant that counts, and the queues that may have waiters.
    pub(super) fn drain(&self, end: LocalInstant) -> (LocalInstant, Vec<Arc<SharedQueue>>) {
        // No waiter is missed: one that enters after this reads the deadline itself, and one that
        // entered before is in a queue that is returned.
        let end = {
            let mut known = lock(&self.drain_deadline);
            let end = known.map_or(end, |known| known.min(end));
            *known = Some(end);
            end
        };
        self.drained.notify_waiters();
        (end, self.all())
    }
}

/// One queue and its lock, shared by its waiters and its held slots.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(super) backend: Arc<dyn Backend>,
    /// Weak, since the registry holds the queue: two strong handles would keep both alive.
    pub(super) registry: Weak<QueueRegistry>,
    epoch: Epoch,
    buckets: BucketSet,
    /// The ledgers of its buckets, in the same order.
    pub(super) ledgers: Vec<Arc<Ledger<Self>>>,
    /// How many slots are held outside of the queue, by reservations that were not polled yet.
    held_slots: AtomicUsize,
    waiters: Mutex<WaitQueue>,
}

impl SharedQueue {
    fn new(registry: &Arc<QueueRegistry>, buckets: BucketSet) -> Self {
        let (backend, epoch) = (Arc::clone(&registry.backend), registry.epoch);
        let ledgers = buckets.parts().iter().map(|part| registry.ledgers.get(part.id())).collect();
        let (held_slots, waiters) = Default::default();
        let registry = Arc::downgrade(registry);
        Self { backend, registry, epoch, buckets, ledgers, held_slots, waiters }
    }

    /// Counts one held slot less: its waiter has entered the queue, or the slot was given up or
    /// kept.
    pub(super) fn end_reservation(&self) {
        self.held_slots.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether the queue has neither a waiter nor a held slot.
    pub(super) fn is_empty(&self) -> bool {
        // The count first: a slot enters the queue before it stops being counted. In the other
        // order, one that enters in between would be in neither.
        self.held_slots.load(Ordering::Acquire) == 0 && self.with(|waiters, _| waiters.is_empty())
    }

    pub(crate) const fn buckets(&self) -> &BucketSet {
        &self.buckets
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn now(&self) -> LocalInstant {
        self.epoch.now()
    }

    /// Runs `work` under the lock of the queue. Wakes its wakers after the lock is released, since
    /// they may run code that locks the queue again.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut WaitQueue, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let done = work(&mut lock(&self.waiters), &mut wakers);
        // `work` has returned and the guard, a temporary, is dropped. `wakers.discard` is dropped
        // below, also without the lock.
        wakers.wake.into_iter().for_each(Waker::wake);
        done
    }
}
