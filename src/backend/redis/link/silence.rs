//! Since when a server owes an answer, as its connection sees it.
//!
//! # Design
//!
//! A flood of one client can keep all threads of this process busy. Then a task that waits for an answer
//! runs long after the answer has come, and each call would seem to be late by the fault of the server.
//! So two instants count on which the tasks have no influence: when bytes were written to the socket, and
//! when the system told that some can be read. The waker that a read leaves behind notes that, before the
//! task that it wakes has a turn.
//!
//! Several calls are under way at once, and nothing tells which of them the bytes answer. So what counts
//! is whether any answer was owed: a server that is slow owes one nearly always, and one that waits for
//! this process hardly ever.

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
    /// For how long answers were owed until then, in all.
    owed: AtomicU64,
    /// Some of these sums, and when they were that, the oldest first.
    before: Mutex<[Sum; 3]>,
    reader: Mutex<Waker>,
}

impl Silence {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            asked: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            before: Mutex::default(),
            reader: Mutex::new(Waker::noop().clone()),
        })
    }

    /// Notes that bytes were written, at a time from before that: the answer may come at once.
    pub(super) fn ask(&self, now: u64) {
        // Relaxed, as one task writes and the times guard nothing.
        if self.asked.load(Ordering::Relaxed) <= self.heard.load(Ordering::Relaxed) {
            self.asked.store(now, Ordering::Relaxed);
        }
    }

    /// Notes that bytes have come.
    pub(super) fn hear(&self) {
        let (now, asked) = (self.now(), self.asked.load(Ordering::Relaxed));
        if asked > self.heard.swap(now, Ordering::Relaxed) {
            self.owed.fetch_add(now.saturating_sub(asked), Ordering::Relaxed);
        }
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let [_, older, newest] = *before;
        if now.saturating_sub(newest.at) >= APART {
            *before = [older, newest, Sum { at: now, owed: self.owed.load(Ordering::Relaxed) }];
        }
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
        is_owed.then(|| self.instant(asked))
    }

    /// Whether an answer is owed for so long, or one was nearly always owed lately.
    pub(super) fn has_lasted(&self, time: Duration) -> bool {
        let owed_now = self.since().map(|since| since.elapsed()).unwrap_or_default();
        if owed_now >= time {
            return true;
        }
        let [oldest, ..] = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = Duration::from_nanos(self.now().saturating_sub(oldest.at));
        let owed = self.owed.load(Ordering::Relaxed).saturating_sub(oldest.owed);
        Duration::from_nanos(owed).saturating_add(owed_now) >= passed / 5 * 4
    }

    /// When bytes last came.
    pub(super) fn heard(&self) -> Instant {
        self.instant(self.heard.load(Ordering::Relaxed))
    }

    fn instant(&self, nanos: u64) -> Instant {
        self.begun.checked_add(Duration::from_nanos(nanos)).unwrap_or(self.begun)
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// For how long answers were owed in all, at some time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    at: u64,
    owed: u64,
}

/// How far apart the sums are at least. Three of them go back by the usual deadline.
const APART: u64 = 25_000_000;

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
