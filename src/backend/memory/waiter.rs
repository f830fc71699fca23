//! A waiter: a request that stands in the lines of one or several buckets.
//!
//! # Design
//!
//! A waiter may run once all its buckets have granted. A grant is pushed to the waiter and wakes
//! its task; the waiter does not have to come and fetch it. So a task that is never polled again
//! holds up no other waiter.
//!
//! Locks are taken in one order: a shard, then a waiter. A waker is code of others, which may call
//! the store again. So it is cloned and dropped without the waiter's lock, and woken after the
//! shard is unlocked, by [`Wakeups`].

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::fingerprint::{Fingerprint, Tag};
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// A request that stands in the lines of one or several buckets. Its work may run when all of them
/// have granted.
#[derive(Debug)]
pub(crate) struct LineWaiter {
    /// The limiter whose [drain](super::Memory::drain) may send this waiter away; `None` if none
    /// may.
    drained_by: Option<NonZeroU64>,
    state: Mutex<WaiterState>,
}

#[derive(Debug)]
struct WaiterState {
    /// The number of buckets that have not granted yet.
    pending: u32,
    is_drained: bool,
    /// The latest instant at which a bucket has granted; before that, the instant of arrival.
    granted_at: Timestamp,
    waker: Option<Waker>,
    /// The buckets that were reset while this waiter stood in their lines, each with the mark after
    /// the reset. Nearly always none.
    outlived: Vec<(Tag, ResetMark)>,
}

/// The answer to a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterStatus {
    Waiting,
    /// The work may run, from this instant on.
    Granted(Timestamp),
    /// The limiter is closing, and its turn would come too late.
    Drained,
}

impl LineWaiter {
    /// A waiter that stands in no line yet. `drained_by` is the number of the limiter that may
    /// [drain](super::Memory::drain) it.
    pub(crate) fn new(drained_by: Option<NonZeroU64>) -> Arc<Self> {
        let granted_at = Timestamp::from_micros(i64::MIN);
        let (waker, is_drained, outlived) = Default::default();
        let state = WaiterState { pending: 0, granted_at, waker, is_drained, outlived };
        Arc::new(Self { drained_by, state: Mutex::new(state) })
    }

    pub(super) fn enter(&self, now: Timestamp) {
        let mut state = self.state.lock();
        state.granted_at = state.granted_at.max(now);
        // All lines are entered under the locks of one decision. So no grant comes in between,
        // which would find nothing pending and let the work run before the other buckets have
        // granted.
        state.pending = state.pending.saturating_add(1);
    }

    /// Notes the grant of one bucket. Returns the waker if that was the last, to be woken without a
    /// lock.
    pub(super) fn grant(&self, at: Timestamp) -> Option<Waker> {
        let mut state = self.state.lock();
        // Shards grant independently. Whichever of them comes last under this lock wakes the task,
        // and only that one.
        state.pending = state.pending.saturating_sub(1);
        state.granted_at = state.granted_at.max(at);
        if state.pending == 0 { state.waker.take() } else { None }
    }

    /// Notes that a bucket was reset which has not granted yet. What it grants is taken after the
    /// reset.
    pub(super) fn outlive_reset(&self, bucket: Tag, mark: ResetMark) {
        let mut state = self.state.lock();
        match state.outlived.iter_mut().find(|(known, _)| *known == bucket) {
            Some((_, last)) => *last = mark,
            None => state.outlived.push((bucket, mark)),
        }
    }

    /// The mark of what this bucket has granted; `None` if it was not reset while the waiter stood
    /// there.
    pub(super) fn mark_of(&self, bucket: impl FnOnce() -> Tag) -> Option<ResetMark> {
        let state = self.state.lock();
        if state.outlived.is_empty() {
            return None;
        }
        let bucket = bucket();
        state.outlived.iter().find(|(known, _)| *known == bucket).map(|&(_, mark)| mark)
    }

    pub(super) fn is_drained_by(&self, limiter: NonZeroU64) -> bool {
        self.drained_by == Some(limiter)
    }

    /// Sends the waiter away. Returns the waker, to be woken without a lock.
    pub(super) fn drain(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        // The count stays: if all buckets grant before the task has polled, the request runs after
        // all.
        state.is_drained = true;
        state.waker.take()
    }

    /// Takes the waker, so that the task can be woken to poll again.
    pub(super) fn take_waker(&self) -> Option<Waker> {
        self.state.lock().waker.take()
    }

    /// Polls the waiter, and stores the waker if it still has to wait.
    pub(crate) fn poll(&self, waker: &Waker) -> WaiterStatus {
        if let Some(status) = self.status_if(|state| match &state.waker {
            Some(known) => known.will_wake(waker),
            None => false,
        }) {
            return status;
        }
        // A waker is code of others: clone it and drop the old one without a lock.
        let mut waker = Some(waker.clone());
        let status = self.status_if(|state| {
            // A grant between the two locks may have found an old waker or none. It is not lost:
            // `status_if` looks at the count again before this one is stored.
            std::mem::swap(&mut state.waker, &mut waker);
            true
        });
        drop(waker);
        status.unwrap_or(WaiterStatus::Waiting)
    }

    /// The status; `None` if the request has to wait and has no current waker.
    fn status_if(&self, has_waker: impl FnOnce(&mut WaiterState) -> bool) -> Option<WaiterStatus> {
        let mut state = self.state.lock();
        if state.pending == 0 {
            return Some(WaiterStatus::Granted(state.granted_at));
        }
        if state.is_drained {
            return Some(WaiterStatus::Drained);
        }
        has_waker(&mut state).then_some(WaiterStatus::Waiting)
    }
}

/// The place of a waiter in the line of one bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinePlace {
    pub(super) print: Fingerprint,
    pub(super) ticket: u64,
}

/// What a reservation that has to wait holds of this store: its waiter, and its places.
#[derive(Debug)]
pub(crate) struct LineTicket {
    pub(crate) waiter: Arc<LineWaiter>,
    pub(crate) places: SmallVec<[LinePlace; 1]>,
    /// Whether no other request waits there, so its turn is at the instant that it is promised.
    pub(crate) is_alone: bool,
}

/// A timer that grants what is due in a line if no other call comes to the bucket.
///
/// A waiter that is alone has a timer of its own. A line of several has one timer, which grants
/// them in order.
pub(crate) trait LineTimer: fmt::Debug + Send + Sync {
    /// Sets the timer to `due`, the instant at which the head is due. The clock of the store shows
    /// `now`.
    fn arm(self: Arc<Self>, due: Timestamp, now: Timestamp);

    /// Stops the timer, as the line has ended.
    fn disarm(&self);
}

/// A timer, with the instant to which it is to be set and the time by the store's clock; `None` to
/// stop it.
type TimerChange = (Arc<dyn LineTimer>, Option<(Timestamp, Timestamp)>);

/// The wakers to wake and the timers to set once no lock is held. Both are code of others, which
/// may call the store again.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    wakers: SmallVec<[Waker; 2]>,
    timers: SmallVec<[TimerChange; 1]>,
}

impl Wakeups {
    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    pub(super) fn arm(&mut self, timer: &Arc<dyn LineTimer>, due: Timestamp, now: Timestamp) {
        self.timers.push((Arc::clone(timer), Some((due, now))));
    }

    pub(super) fn disarm(&mut self, timer: Arc<dyn LineTimer>) {
        self.timers.push((timer, None));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.timers.is_empty()
    }

    pub(super) fn append(&mut self, mut others: Self) {
        self.wakers.append(&mut others.wakers);
        self.timers.append(&mut others.timers);
    }

    /// Wakes the waiters, in the order in which they were granted.
    pub(super) fn run(self) {
        self.wakers.into_iter().for_each(Waker::wake);
        for (timer, next) in self.timers {
            match next {
                Some((due, now)) => timer.arm(due, now),
                None => timer.disarm(),
            }
        }
    }
}
