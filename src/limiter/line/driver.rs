//! The timer of a line in which several requests wait.

use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use scopeguard::{ScopeGuard, guard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::backend::{Backend, LinePlace, LineTimer};
use crate::clock::Timestamp;
use crate::limiter::queue::StoreClock;

/// Grants the head of a line when it is due, from a task of its own.
///
/// It is a task and not the future of a waiter, since a waiter may stop being polled. The task ends
/// when the line has nothing to wait for.
#[derive(Debug)]
pub(super) struct LineDriver {
    /// Weak, since the store holds the driver.
    store: Weak<dyn Backend>,
    /// The wrapper around the memory store, if there is one: the line may outlive its limiter.
    _wrapper: Option<Arc<dyn Backend>>,
    /// A place in the line, which identifies the line.
    place: LinePlace,
    runtime: Handle,
    state: Mutex<DriverState>,
    rearmed: Notify,
}

#[derive(Debug, Default)]
struct DriverState {
    is_running: bool,
    due: Option<Timestamp>,
    clock: StoreClock,
    last_shown: Option<Timestamp>,
}

impl LineDriver {
    /// A driver on the runtime of the caller, or `None` if the caller is outside of one.
    pub(super) fn try_current(
        store: &Arc<dyn Backend>,
        place: LinePlace,
    ) -> Option<Arc<dyn LineTimer>> {
        let runtime = Handle::try_current().ok()?;
        let (state, rearmed) = Default::default();
        let lines = store.lines()?;
        let is_wrapper = !ptr::addr_eq(Arc::as_ptr(store), lines);
        let _wrapper = is_wrapper.then(|| Arc::clone(store));
        let store = Arc::downgrade(store);
        Some(Arc::new(Self { _wrapper, store, place, runtime, state, rearmed }))
    }

    /// The task was dropped before it has ended, as its runtime was shut down. The store wakes the
    /// waiters, and the first to poll brings a new driver.
    fn detach(self: Arc<Self>) {
        if let Some(store) = self.store.upgrade()
            && let Some(lines) = store.lines()
        {
            lines.detach(&self.place);
        }
    }
}

impl LineTimer for LineDriver {
    fn arm(self: Arc<Self>, due: Timestamp, now: Timestamp) {
        // The task ends under this lock as well, when `next` finds nothing due. So it either sees
        // this `due`, or has noted that it no longer runs, and another one is started here.
        let mut state = self.state.lock();
        state.observe(now);
        let is_sooner = state.due.is_none_or(|armed| due < armed);
        // Calls may arrive out of order. An older one can only make the timer too early, and then
        // the task finds nothing due and arms it again.
        if is_sooner {
            state.due = Some(due);
        }
        if !state.is_running {
            state.is_running = true;
            drop(state);
            // Without the lock: a runtime that shuts down drops the task at once, and its guard
            // calls the store.
            let driver = Arc::clone(&self);
            let detach: fn(_) = Self::detach;
            self.runtime.spawn(drive(guard(driver, detach)));
        } else if is_sooner {
            drop(state);
            // If the task does not wait at this moment, the notification is kept, and its next wait
            // ends at once. So an earlier `due` is never slept through.
            self.rearmed.notify_one();
        }
    }

    fn disarm(&self) {
        self.state.lock().due = None;
        // Wakes the task, which finds nothing to wait for and ends.
        self.rearmed.notify_one();
    }
}

impl DriverState {
    fn observe(&mut self, shown: Timestamp) {
        // If the store's clock was set back, what it has shown before is useless.
        if self.last_shown.is_some_and(|last| shown < last) {
            self.clock = StoreClock::default();
        }
        self.clock.observe(shown, Instant::now());
        self.last_shown = Some(shown);
    }

    /// What is due next, and when; `None` if there is nothing to wait for.
    fn next(&mut self) -> Option<(Timestamp, Instant)> {
        let next = self.due.and_then(|due| Some((due, self.clock.instant_of(due)?)));
        // In the same step as the look at `due`: see `arm`.
        self.is_running = next.is_some();
        next
    }

    /// Takes out `due`, unless the timer was armed for another instant meanwhile. Returns a time
    /// that the store's clock has certainly reached: all waiters due by then are granted together.
    fn take(&mut self, due: Timestamp) -> Option<Timestamp> {
        self.due.take_if(|armed| *armed == due)?;
        Some(due.max(self.clock.time_at(Instant::now())?))
    }
}

async fn drive(driver: ScopeGuard<Arc<LineDriver>, fn(Arc<LineDriver>)>) {
    loop {
        let Some((due, until)) = driver.state.lock().next() else {
            drop(ScopeGuard::into_inner(driver));
            return;
        };
        if timeout_at(until, driver.rearmed.notified()).await.is_ok() {
            continue;
        }
        // Taken out before the store is called: the store may arm the driver again before it
        // returns, and that must not be overwritten.
        let until = driver.state.lock().take(due);
        // The handle lives for this call only, so that a task which waits for hours keeps no store
        // alive. Without a store, `due` stays empty and the next round ends the task.
        if let (Some(until), Some(store)) = (until, driver.store.upgrade())
            && let Some(lines) = store.lines()
        {
            // The store arms the driver again if the line still has a head.
            lines.grant_until(&driver.place, until);
        }
    }
}
