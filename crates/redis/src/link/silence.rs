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

    /// As [`NodeState::is_late`](super::node_state::NodeState::is_late).
    pub(super) fn is_late(&self, begun: Instant, time: Duration, is_flooded: bool) -> Option<bool> {
        let owed_since = self.since();
        let owed_now = owed_since.map(|since| since.elapsed()).unwrap_or_default();
        if is_flooded || owed_now >= time {
            return Some(owed_now >= time);
        }
        if self.nearly_always(owed_now) {
            return Some(true);
        }
        // Nothing was written since the call began: this process has not come to that yet. Or something
        // was heard just now. Otherwise, the next answer may be one that is not complete.
        let [asked, heard] =
            [&self.asked, &self.heard].map(|at| self.instant(at.load(Ordering::Relaxed)));
        let is_unsent = owed_since.is_none() && asked < begun;
        (is_unsent || heard.elapsed() < time).then_some(false)
    }

    /// Whether answers were owed nearly always lately.
    fn nearly_always(&self, owed_now: Duration) -> bool {
        let [oldest, ..] = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = Duration::from_nanos(self.now().saturating_sub(oldest.at));
        let owed = self.owed.load(Ordering::Relaxed).saturating_sub(oldest.owed);
        Duration::from_nanos(owed).saturating_add(owed_now) >= passed / 5 * 4
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// A process that was busy had not written its call by the deadline, and the server seemed to owe the
    /// answer: 33 of 70 requests passed uncounted.
    #[tokio::test(start_paused = true)]
    async fn no_answer_is_owed_to_a_call_that_was_not_written() {
        let silence = Silence::new();
        // An earlier call.
        advance(200 * MILLI).await;
        silence.ask(silence.now());
        advance(MILLI).await;
        silence.hear();
        advance(100 * MILLI).await;
        let begun = Instant::now();
        advance(50 * MILLI).await;
        assert_eq!(silence.is_late(begun, 40 * MILLI, false), Some(false));
        // Once it is written, its answer is owed.
        silence.ask(silence.now());
        advance(30 * MILLI).await;
        assert_eq!(silence.is_late(begun, 40 * MILLI, false), None);
        advance(10 * MILLI).await;
        assert_eq!(silence.is_late(begun, 40 * MILLI, false), Some(true));
        // A part of it, perhaps.
        silence.hear();
        assert_eq!(silence.is_late(begun, 60 * MILLI, false), Some(false));
        advance(60 * MILLI).await;
        assert_eq!(silence.is_late(begun, 60 * MILLI, false), None);
    }
}
