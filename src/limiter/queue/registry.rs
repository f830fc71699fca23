//! The queues of a limiter, found by the buckets that they wait for.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bucket_set::BucketSet;
use super::local_instant::{Epoch, LocalInstant};
use super::time_slot::TimeSlot;
use super::wait_queue::WaitQueue;
use super::wakers::Wakers;
use crate::algebra::Verdict;
use crate::backend::{Adjustment, Applied, Backend, BackendError};
use crate::clock::Timestamp;
use crate::limiter::detached::DetachOnDrop;

/// The queues in which a request waits or for which there is a reservation.
#[derive(Debug)]
pub(crate) struct QueueRegistry {
    backend: Arc<dyn Backend>,
    queues: Mutex<HashSet<RegistryEntry>>,
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
        let (queues, end, drained, numbers) = Default::default();
        Self { backend, queues, end, drained, epoch: Epoch::new(), numbers }
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Tells reservations apart.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The queue of these buckets, with one reservation more, which the store made at `now`.
    pub(super) fn reserve(self: &Arc<Self>, whose: BucketSet, now: Timestamp) -> Arc<SharedQueue> {
        let heard = self.epoch.now();
        let mut queues = lock(&self.queues);
        let queue = match queues.get(&whose) {
            Some(RegistryEntry(queue)) => Arc::clone(queue),
            None => {
                let queue = Arc::new(SharedQueue::new(self, whose));
                queues.insert(RegistryEntry(Arc::clone(&queue)));
                queue
            }
        };
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
    pub(crate) fn id(self: &Arc<Self>) -> u64 {
        u64::try_from(Arc::as_ptr(self).addr()).unwrap_or(0)
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
        (end, lock(&self.queues).iter().map(|RegistryEntry(queue)| Arc::clone(queue)).collect())
    }
}

/// A queue behind its lock, shared by its waiters and reservations.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    backend: Arc<dyn Backend>,
    /// Weak, as the registry holds the queue: neither would be dropped.
    registry: Weak<QueueRegistry>,
    epoch: Epoch,
    whose: BucketSet,
    line: Mutex<WaitQueue>,
}

impl SharedQueue {
    fn new(registry: &Arc<QueueRegistry>, whose: BucketSet) -> Self {
        let (backend, epoch) = (Arc::clone(&registry.backend), registry.epoch);
        Self { backend, registry: Arc::downgrade(registry), epoch, whose, line: Mutex::default() }
    }

    pub(crate) const fn whose(&self) -> &BucketSet {
        &self.whose
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// After which instant no request is to wait, if there is one.
    pub(super) fn end(&self) -> Option<LocalInstant> {
        self.registry.upgrade()?.end()
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

    /// Undoes the free slots that can be: those from which nothing has been taken since. One after
    /// another, as the one before can be undone only when the one behind it was.
    ///
    /// Then forgets the queue if it has no waiter and no reservation.
    pub(super) fn undo_free_slots(self: &Arc<Self>) {
        while let Some(place) = self.with(|line, _| line.free.next_to_undo()) {
            let mut undo = SmallVec::<[Adjustment<'_>; 2]>::new();
            let amounts = place.grant.taken.as_slice().iter().zip(place.grant.left.as_slice());
            for (part, (&units, &left)) in self.whose.parts().iter().zip(amounts) {
                undo.push(Adjustment::undo(part.id(), part.bucket(), units, left));
            }
            let answer = self.backend.adjust(&undo);
            let undo = Undo { queue: Arc::clone(self), place: Some(place) };
            match DetachOnDrop::new(answer) {
                ready @ DetachOnDrop::Ready(_) => {
                    ready.finish_with(|refunded| undo.hear(&refunded))
                }
                // No caller waits for this, so a store that answers later completes it in a task of its own.
                pending @ DetachOnDrop::Pending(_) => {
                    pending.finish_with(|refunded| {
                        let queue = Arc::clone(&undo.queue);
                        undo.hear(&refunded);
                        queue.undo_free_slots();
                    });
                    return;
                }
            }
        }
        if self.with(|queue, _| queue.is_empty())
            && let Some(registry) = self.registry.upgrade()
        {
            registry.forget(self);
        }
    }
}

/// A slot that the store was asked to undo.
struct Undo {
    queue: Arc<SharedQueue>,
    /// None once the answer was heard.
    place: Option<TimeSlot>,
}

impl Undo {
    fn hear(mut self, answer: &Result<Applied, BackendError>) {
        // What became of it in a store that gives no answer is unknown: it is spent then.
        let undone = |applied: &Applied| applied.verdict() != Verdict::Refused;
        self.is(answer.as_ref().map_or(true, undone));
    }

    fn is(&mut self, given: bool) {
        if let Some(place) = self.place.take() {
            let now = self.queue.now();
            self.queue.with(|line, wakers| line.undone(place, given, now, wakers));
        }
    }
}

/// Not heard, as the runtime has gone or the store's client has panicked.
impl Drop for Undo {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.is(true);
            self.queue.undo_free_slots();
        }
    }
}

/// What a lock guards is never left half changed by anything that can panic, so that a panic
/// elsewhere in the holder's thread does no harm here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
