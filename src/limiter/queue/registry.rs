//! The queues of a limiter, found by the buckets that they wait for.

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

/// The queues in which a request waits or for which there is a reservation.
#[derive(Debug)]
pub(crate) struct QueueRegistry {
    pub(super) backend: Arc<dyn Backend>,
    queues: Mutex<QueueIndex<SharedQueue>>,
    /// What was returned to the buckets.
    pub(super) ledgers: Ledgers<SharedQueue>,
    /// The queues that are kept although nothing waits.
    pub(super) retention: QueueRetention<SharedQueue>,
    /// After which no request is to wait.
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

    /// Numbers what this process hears of.
    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A reservation that the store made at `at`, and of which this thread has just heard.
    pub(crate) fn event(&self, at: Timestamp) -> StoreEvent {
        StoreEvent { at, number: self.number(), thread: Some(thread::current().id()) }
    }

    /// What this process has returned to a bucket since then, at most; none if that is not known.
    pub(crate) fn returned_since(&self, id: BucketId<'_>, made: &StoreEvent) -> Option<Units> {
        self.ledgers.get(id).returned_since(made)
    }

    /// These buckets are reset: no slot from before that is undone.
    pub(crate) fn forget_returns(&self, ids: &[BucketId<'_>]) {
        ids.iter().for_each(|&id| self.ledgers.get(id).forget());
    }

    /// How many wait in this process for what a limit has for a key.
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

    /// The queues that wait for some of these buckets, and few others.
    pub(super) fn find_subsets(&self, buckets: &[BucketId<'_>]) -> Vec<Arc<SharedQueue>> {
        lock(&self.queues).find_subsets(buckets)
    }

    /// The queue of these buckets, with one reservation more, which the store made at `now`.
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
            // While the registry is locked, so that this queue is not forgotten as empty. The queue
            // itself may be locked for other work, which other queues need not wait for.
            queue.held_slots.fetch_add(1, Ordering::AcqRel);
            queue
        };
        for ledger in &queue.ledgers {
            ledger.record_reservation(now);
        }
        queue.with(|waiters, _| waiters.clock.observe(now, heard));
        queue
    }

    /// Forgets a queue that has no waiter and no reservation.
    pub(super) fn forget(&self, queue: &SharedQueue) {
        let mut queues = lock(&self.queues);
        let found = queues.get(queue.buckets());
        let is_this = found.is_some_and(|found| std::ptr::eq(&raw const **found, queue));
        let forgotten =
            if is_this && queue.is_empty() { queues.remove(queue.buckets()) } else { None };
        // It may hold the last handle of the store, which runs foreign code when it is dropped.
        drop(queues);
        if let Some(forgotten) = forgotten {
            forgotten.ledgers.iter().for_each(|ledger| ledger.retries().forget(&forgotten));
        }
    }

    /// After which instant no request is to wait, if there is one.
    pub(super) fn drain_deadline(&self) -> Option<LocalInstant> {
        *lock(&self.drain_deadline)
    }

    /// The same, as the runtime counts time.
    pub(crate) fn drain_instant(&self) -> Option<Instant> {
        self.drain_deadline().map(|end| self.epoch.instant(end))
    }

    /// Completes when such an instant is set.
    pub(crate) async fn drained(&self) {
        self.drained.notified().await;
    }

    /// Tells this limiter from others that share its store.
    #[cfg(feature = "memory")]
    pub(crate) fn id(self: &Arc<Self>) -> Option<NonZeroU64> {
        NonZeroU64::new(u64::try_from(Arc::as_ptr(self).addr()).ok()?)
    }

    /// Lets no request wait for longer than until `end`. Returns the queues that may have waiters.
    pub(super) fn drain(&self, end: LocalInstant) -> (LocalInstant, Vec<Arc<SharedQueue>>) {
        // A waiter that enters after this sees the end; one that entered before is in a queue.
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

/// A queue behind its lock, shared by its waiters and reservations.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(super) backend: Arc<dyn Backend>,
    /// Weak, as the registry holds the queue: neither would be dropped.
    pub(super) registry: Weak<QueueRegistry>,
    epoch: Epoch,
    buckets: BucketSet,
    /// Of its buckets, in their order.
    pub(super) ledgers: Vec<Arc<Ledger<Self>>>,
    /// The reservations that do not stand in the queue, or not yet.
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

    /// A reservation stands in the queue now, or has been given up.
    pub(super) fn end_reservation(&self) {
        self.held_slots.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether it has no waiter and no reservation.
    pub(super) fn is_empty(&self) -> bool {
        // In this order: a reservation stands in the queue before it is no longer outside.
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

    /// Works on the queue, and wakes the waiters that it concerns when its lock is free again.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut WaitQueue, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let done = work(&mut lock(&self.waiters), &mut wakers);
        wakers.wake.into_iter().for_each(Waker::wake);
        done
    }
}
