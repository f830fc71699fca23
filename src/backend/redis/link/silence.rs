//! Since when a server owes an answer, as its connection sees it.
//!
//! # Design
//!
//! A flood of one client can keep all threads of this process busy. Then a task that waits for an answer
//! runs long after the answer has come, and each call would seem to be late by the fault of the server.
//! So two instants count on which the tasks have no influence: when bytes were written to the socket, and
//! when the system told that some can be read. The waker that a read leaves behind notes that, before the
//! task that it wakes has a turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// When something was written to a server, and when something came back.
#[derive(Debug)]
pub(super) struct Silence {
    begun: Instant,
    /// The first write since something came, in nanoseconds after `begun`.
    asked: AtomicU64,
    /// When something last came, likewise.
    heard: AtomicU64,
    reader: Mutex<Waker>,
}

impl Silence {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            asked: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            reader: Mutex::new(Waker::noop().clone()),
        })
    }

    /// Notes that bytes were written.
    pub(super) fn ask(&self) {
        // Relaxed, as one task writes and the times guard nothing.
        if self.asked.load(Ordering::Relaxed) <= self.heard.load(Ordering::Relaxed) {
            self.asked.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Notes that bytes have come.
    pub(super) fn hear(&self) {
        self.heard.store(self.now(), Ordering::Relaxed);
    }

    /// The waker for a read: it notes that bytes have come, and wakes this one.
    pub(super) fn waker(self: &Arc<Self>, reader: &Waker) -> Waker {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone_from(reader);
        Waker::from(Arc::clone(self))
    }

    /// Since when an answer is owed; `None` if none is.
    pub(super) fn since(&self) -> Option<Instant> {
        let asked = self.asked.load(Ordering::Relaxed);
        let is_owed = asked > self.heard.load(Ordering::Relaxed);
        is_owed.then(|| self.begun.checked_add(Duration::from_nanos(asked)).unwrap_or(self.begun))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Wake for Silence {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.hear();
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reader.wake();
    }
}
