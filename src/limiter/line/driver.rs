//! The timer of a line in which several wait.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::backend::{LinePlace, LineTimer, Memory};
use crate::clock::Timestamp;

/// Grants the head of a line when it is due, in a task of its own that ends when there is nothing
/// to wait for.
///
/// It is a task and not the future of a waiter, as a waiter may stop being polled.
#[derive(Debug)]
pub(super) struct LineDriver {
    /// Weak, as the store holds the driver.
    memory: Weak<Memory>,
    /// Any place in the line.
    place: LinePlace,
    runtime: Handle,
    state: Mutex<DriverState>,
    is_sooner: Notify,
}

#[derive(Debug, Default)]
struct DriverState {
    is_running: bool,
    due: Option<Timestamp>,
    /// An instant of the store's clock, and when this process was told of it. Of all that were told,
    /// the pair that was on its way for the shortest time.
    heard: Option<(Timestamp, Instant)>,
    last_shown: Option<Timestamp>,
}

impl LineDriver {
    /// A driver in the runtime of the caller, if it is in one.
    pub(super) fn in_this_runtime(
        memory: &Arc<Memory>,
        place: LinePlace,
    ) -> Option<Arc<dyn LineTimer>> {
        let runtime = Handle::try_current().ok()?;
        let (state, is_sooner) = Default::default();
        let memory = Arc::downgrade(memory);
        Some(Arc::new(Self { memory, place, runtime, state, is_sooner }))
    }
}

impl LineTimer for LineDriver {
    fn arm(self: Arc<Self>, due: Timestamp, now: Timestamp) {
        let mut state = self.state.lock();
        state.hear(now);
        let is_sooner = state.due.is_none_or(|armed| due < armed);
        // A call that was overtaken says what was true before; at worst, the task looks once in vain.
        if is_sooner {
            state.due = Some(due);
        }
        if !state.is_running {
            state.is_running = true;
            drop(state);
            let driver = Arc::clone(&self);
            self.runtime.spawn(drive(Running { driver, has_ended: false }));
        } else if is_sooner {
            drop(state);
            self.is_sooner.notify_one();
        }
    }

    fn disarm(&self) {
        self.state.lock().due = None;
        // The task looks, finds nothing to wait for, and ends.
        self.is_sooner.notify_one();
    }
}

impl DriverState {
    fn hear(&mut self, shown: Timestamp) {
        let now = Instant::now();
        let known = self.heard.and_then(|heard| instant_of(heard, shown));
        // A clock that was set back counts from where it is.
        let went_back = self.last_shown.is_some_and(|last| shown < last);
        if went_back || known.is_none_or(|known| now < known) {
            self.heard = Some((shown, now));
        }
        self.last_shown = Some(shown);
    }

    /// What is due next, and when; `None` if there is nothing to wait for.
    fn next(&mut self) -> Option<(Timestamp, Instant)> {
        let next = self.due.and_then(|due| Some((due, instant_of(self.heard?, due)?)));
        self.is_running = next.is_some();
        next
    }

    /// Takes what was due, unless something else is by now. Returns what the store's clock shows at
    /// least: all that is due by then is granted at once.
    fn take(&mut self, due: Timestamp) -> Option<Timestamp> {
        self.due.take_if(|armed| *armed == due)?;
        let (shown, heard) = self.heard?;
        Some(due.max(shown + Instant::now().saturating_duration_since(heard)))
    }
}

/// When the store's clock shows `at`, given an instant that it has shown.
fn instant_of((shown, heard): (Timestamp, Instant), at: Timestamp) -> Option<Instant> {
    if at >= shown {
        heard.checked_add(at.since(shown))
    } else {
        heard.checked_sub(shown.since(at))
    }
}

async fn drive(mut running: Running) {
    loop {
        let driver = &running.driver;
        let Some((due, until)) = driver.state.lock().next() else {
            running.has_ended = true;
            return;
        };
        if timeout_at(until, driver.is_sooner.notified()).await.is_ok() {
            continue;
        }
        let until = driver.state.lock().take(due);
        if let (Some(until), Some(memory)) = (until, driver.memory.upgrade()) {
            // The store arms the driver again if there is a head to wait for.
            memory.grant_until(&driver.place, until);
        }
    }
}

/// The task.
struct Running {
    driver: Arc<LineDriver>,
    has_ended: bool,
}

/// Dropped before it has ended, its runtime has gone. One of the waiters brings another.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(memory) = self.driver.memory.upgrade()
        {
            memory.detach(&self.driver.place);
        }
    }
}
