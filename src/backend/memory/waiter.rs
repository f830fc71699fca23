//! A request that stands in line.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::fingerprint::{Fingerprint, Tag};
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// A request that stands in the lines of one or several buckets.
///
/// Its work may run when all of them have granted. It is granted and woken, not asked: a request
/// that is never polled again holds up no other.
#[derive(Debug)]
pub(crate) struct LineWaiter {
    /// Tells whose requests a [drain](super::Memory::drain) is about; `None` if it cannot be sent
    /// away.
    drained_by: Option<NonZeroU64>,
    state: Mutex<WaiterState>,
}

#[derive(Debug)]
struct WaiterState {
    /// The buckets that have not granted yet.
    pending: u32,
    is_drained: bool,
    /// The latest instant at which one has; before that, when it came.
    granted_at: Timestamp,
    waker: Option<Waker>,
    /// Those of its buckets that were reset while it waited there, and the marks from then. Nearly
    /// always none.
    outlived: Vec<(Tag, ResetMark)>,
}

/// What a waiter is told that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterStatus {
    Waiting,
    /// Its work may run, from this instant on.
    Granted(Timestamp),
    /// The limiter is closing, and its turn would come too late.
    Drained,
}

impl LineWaiter {
    /// A waiter that stands in no line yet. A limiter that [drains](super::Memory::drain) by this
    /// number sends it away; none does without a number.
    pub(crate) fn new(drained_by: Option<NonZeroU64>) -> Arc<Self> {
        let granted_at = Timestamp::from_micros(i64::MIN);
        let (waker, is_drained, outlived) = Default::default();
        let state = WaiterState { pending: 0, granted_at, waker, is_drained, outlived };
        Arc::new(Self { drained_by, state: Mutex::new(state) })
    }

    pub(super) fn enter(&self, now: Timestamp) {
        let mut state = self.state.lock();
        state.granted_at = state.granted_at.max(now);
        state.pending = state.pending.saturating_add(1);
    }

    /// One of its buckets grants. Returns what to wake once no lock is held.
    pub(super) fn grant(&self, at: Timestamp) -> Option<Waker> {
        let mut state = self.state.lock();
        state.pending = state.pending.saturating_sub(1);
        state.granted_at = state.granted_at.max(at);
        if state.pending == 0 { state.waker.take() } else { None }
    }

    /// A bucket was reset that has not granted yet: its tokens are taken after that.
    pub(super) fn outlive_reset(&self, bucket: Tag, mark: ResetMark) {
        let mut state = self.state.lock();
        match state.outlived.iter_mut().find(|(known, _)| *known == bucket) {
            Some((_, last)) => *last = mark,
            None => state.outlived.push((bucket, mark)),
        }
    }

    /// The mark of what such a bucket has granted; `None` if it was not reset meanwhile.
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

    /// Sends it away. Returns what to wake once no lock is held.
    pub(super) fn drain(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.is_drained = true;
        state.waker.take()
    }

    /// What to wake, so that it looks where it stands.
    pub(super) fn take_waker(&self) -> Option<Waker> {
        self.state.lock().waker.take()
    }

    /// Where it stands; it remembers what to wake if it still waits.
    pub(crate) fn poll(&self, waker: &Waker) -> WaiterStatus {
        if let Some(status) = self.status_if(|state| match &state.waker {
            Some(known) => known.will_wake(waker),
            None => false,
        }) {
            return status;
        }
        // A waker is foreign code: it is cloned and dropped when nothing is locked.
        let mut waker = Some(waker.clone());
        let status = self.status_if(|state| {
            std::mem::swap(&mut state.waker, &mut waker);
            true
        });
        drop(waker);
        status.unwrap_or(WaiterStatus::Waiting)
    }

    /// Where it stands; `None` if it waits and knows nothing to wake.
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

/// A place in the line of one bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinePlace {
    pub(super) print: Fingerprint,
    pub(super) ticket: u64,
}

/// What a reservation that has to wait has of this store: its waiter, and its places.
#[derive(Debug)]
pub(crate) struct LineTicket {
    pub(crate) waiter: Arc<LineWaiter>,
    pub(crate) places: SmallVec<[LinePlace; 1]>,
    /// Whether no other waits there, so that its turn is at the instant that it is told.
    pub(crate) is_alone: bool,
}

/// Grants what is due in a line when nothing else comes to its bucket.
///
/// A waiter that stands alone has a timer of its own. With others, one timer grants all of them, in
/// their order.
pub(crate) trait LineTimer: fmt::Debug + Send + Sync {
    /// The head of the line is due at `due`. The clock of the store shows `now`.
    fn arm(self: Arc<Self>, due: Timestamp, now: Timestamp);

    /// The line has ended.
    fn disarm(&self);
}

/// A timer, when it is to go off, and what the store's clock shows; not at all if its line has
/// ended.
type Arming = (Arc<dyn LineTimer>, Option<(Timestamp, Timestamp)>);

/// What is done when no lock is held any more, as it is foreign code, which may come back here.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    wakers: SmallVec<[Waker; 2]>,
    timers: SmallVec<[Arming; 1]>,
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
