//! The queues of a limiter, found by the buckets that they wait for.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
#[cfg(feature = "memory")]
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::bucket_set::BucketSet;
use super::ledger::{Ledger, Ledgers, lock};
use super::local_instant::{Epoch, LocalInstant};
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
    queues: Mutex<HashSet<RegistryEntry>>,
    /// What was returned to the buckets, and the queues of their waiters.
    pub(super) ledgers: Ledgers<SharedQueue>,
    /// After which no request is to wait.
    end: Mutex<Option<LocalInstant>>,
    drained: Notify,
    epoch: Epoch,
    numbers: AtomicU64,
}

/// A queue, found by its buckets.
#[derive(Debug)]
struct RegistryEntry(Arc<SharedQueue>);

impl Borrow<BucketSet> for RegistryEntry {
    fn borrow(&self) -> &BucketSet {
        self.0.whose()
    }
}

impl PartialEq for RegistryEntry {
    fn eq(&self, other: &Self) -> bool {
        self.0.whose() == other.0.whose()
    }
}

impl Eq for RegistryEntry {}

impl Hash for RegistryEntry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.whose().hash(state);
    }
}

/// Above this, room for queues is given back when most of it is not used.
const ROOM: usize = 1_024;

impl QueueRegistry {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let (queues, ledgers, end, drained, numbers) = Default::default();
        Self { backend, queues, ledgers, end, drained, epoch: Epoch::new(), numbers }
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Numbers what this process hears of.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
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
            let mut parts = queue.whose().parts().iter();
            parts.any(|part| part.limit().name() == limit && part.key() == key)
        });
        let none = WaitStatus { waiting: 0, until: None, left: 0 };
        concerned.fold(none, |all, queue| {
            let one = queue.with(|line, _| line.status());
            let until = one.until.map(|until| until.since(now));
            WaitStatus {
                waiting: all.waiting.saturating_add(one.waiting),
                until: all.until.max(until),
                left: all.left.saturating_add(one.left),
            }
        })
    }

    fn all(&self) -> Vec<Arc<SharedQueue>> {
        lock(&self.queues).iter().map(|RegistryEntry(queue)| Arc::clone(queue)).collect()
    }

    /// The queue of these buckets, with one reservation more, which the store made at `now`.
    pub(super) fn reserve(self: &Arc<Self>, whose: BucketSet, now: Timestamp) -> Arc<SharedQueue> {
        let heard = self.epoch.now();
        let mut queues = lock(&self.queues);
        let queue = match queues.get(&whose) {
            Some(RegistryEntry(queue)) => Arc::clone(queue),
            None => {
                let queue = Arc::new(SharedQueue::new(self, whose));
                queue.ledgers.iter().for_each(|ledger| ledger.join(&queue));
                queues.insert(RegistryEntry(Arc::clone(&queue)));
                queue
            }
        };
        for ledger in &queue.ledgers {
            ledger.reserved(now);
        }
        // While the registry is locked, so that this queue is not forgotten as empty.
        queue.with(|line, _| {
            line.outside = line.outside.saturating_add(1);
            line.clock.heard(now, heard);
        });
        queue
    }

    /// Forgets a queue that has no waiter and no reservation.
    pub(super) fn forget(&self, queue: &SharedQueue) {
        let mut queues = lock(&self.queues);
        let found = queues.get(queue.whose());
        let is_this =
            found.is_some_and(|RegistryEntry(found)| std::ptr::eq(&raw const **found, queue));
        let forgotten = if is_this && queue.with(|line, _| line.is_empty()) {
            let forgotten = queues.take(queue.whose());
            if queues.capacity() > ROOM && queues.len() < queues.capacity() / 8 {
                queues.shrink_to(ROOM);
            }
            forgotten
        } else {
            None
        };
        // It may hold the last handle of the store, which runs foreign code when it is dropped.
        drop(queues);
        drop(forgotten);
    }

    /// After which instant no request is to wait, if there is one.
    pub(super) fn end(&self) -> Option<LocalInstant> {
        *lock(&self.end)
    }

    /// The same, as the runtime counts time.
    pub(crate) fn end_instant(&self) -> Option<Instant> {
        self.end().map(|end| self.epoch.instant(end))
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
            let mut known = lock(&self.end);
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
    whose: BucketSet,
    /// Of its buckets, in their order.
    pub(super) ledgers: Vec<Arc<Ledger<Self>>>,
    line: Mutex<WaitQueue>,
}

impl SharedQueue {
    fn new(registry: &Arc<QueueRegistry>, whose: BucketSet) -> Self {
        let (backend, epoch) = (Arc::clone(&registry.backend), registry.epoch);
        let ledgers = whose.parts().iter().map(|part| registry.ledgers.get(part.id())).collect();
        let (registry, line) = (Arc::downgrade(registry), Mutex::default());
        Self { backend, registry, epoch, whose, ledgers, line }
    }

    pub(crate) const fn whose(&self) -> &BucketSet {
        &self.whose
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
        let done = work(&mut lock(&self.line), &mut wakers);
        wakers.wake.into_iter().for_each(Waker::wake);
        done
    }
}
