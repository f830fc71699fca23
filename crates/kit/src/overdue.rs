//! How long tasks had to wait for their turns.
//!
//! # Design
//!
//! A flood of one client can keep all threads of this process busy. Then a task that writes calls or reads
//! answers runs long after there was something to write or to read, and a timer alone would take that for
//! the silence of the server. So the waker of such a task notes when it was woken, and each turn adds the
//! time since then.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// How long a few tasks were ready to run, and did not.
#[derive(Clone, Debug)]
pub struct Overdue(Arc<Mutex<Waits>>);

#[derive(Debug)]
struct Waits {
    /// What is shorter does not count: a sound process is never without a task that is ready.
    least: Duration,
    /// How long tasks have waited for former turns.
    before: Duration,
    /// The tasks that were woken for turns that they have not had yet, and when.
    awaited: Vec<(u64, Instant)>,
    /// The number of the last task.
    last: u64,
}

impl Waits {
    fn that_counts(&self, since: Instant) -> Duration {
        Some(since.elapsed()).filter(|wait| *wait >= self.least).unwrap_or_default()
    }

    fn end(&mut self, task: u64) {
        if let Some(place) = self.awaited.iter().position(|(other, _)| *other == task) {
            let (_, since) = self.awaited.swap_remove(place);
            self.before = self.before.saturating_add(self.that_counts(since));
        }
    }
}

impl Overdue {
    /// Counts waits that are as long as this.
    pub fn from(least: Duration) -> Self {
        let (before, awaited, last) = Default::default();
        Self(Arc::new(Mutex::new(Waits { least, before, awaited, last })))
    }

    /// How long they have waited in all, up to now.
    pub fn total(&self) -> Duration {
        let waits = self.waits();
        let now = waits.awaited.iter().map(|(_, since)| waits.that_counts(*since));
        now.fold(waits.before, Duration::saturating_add)
    }

    /// Watches a task that is about to be spawned.
    pub fn watch<T, F>(&self, task: F) -> impl Future<Output = T> + use<T, F>
    where
        F: Future<Output = T>,
    {
        let number = {
            let mut waits = self.waits();
            waits.last = waits.last.saturating_add(1);
            let last = waits.last;
            waits.awaited.push((last, Instant::now()));
            last
        };
        let waker = Mutex::new(Some(Waker::noop().clone()));
        let watched = Arc::new(WatchedTask { overdue: self.clone(), number, waker });
        let end = TaskEnd(Arc::clone(&watched));
        async move {
            let mut task = pin!(task);
            let waker = Waker::from(Arc::clone(&watched));
            let done = poll_fn(|cx| {
                // Before the task looks for work: what comes after the look wakes it for another turn.
                watched.begin_turn(cx.waker());
                task.as_mut().poll(&mut Context::from_waker(&waker))
            })
            .await;
            drop(end);
            done
        }
    }

    /// A poisoned lock is harmless: nothing panics while it is held.
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct WatchedTask {
    overdue: Overdue,
    number: u64,
    /// Wakes the task; none once it has ended.
    waker: Mutex<Option<Waker>>,
}

impl WatchedTask {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_turn(&self, own: &Waker) {
        self.overdue.waits().end(self.number);
        if let Some(waker) = &mut *self.waker() {
            waker.clone_from(own);
        }
    }
}

impl Wake for WatchedTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = {
            let waker = self.waker();
            let Some(waker) = &*waker else { return };
            let mut waits = self.overdue.waits();
            // Of several wakes before a turn, the first counts.
            if waits.awaited.iter().all(|(other, _)| *other != self.number) {
                waits.awaited.push((self.number, Instant::now()));
            }
            waker.clone()
        };
        waker.wake();
    }
}

/// The end of a task, also of one that is dropped while it waits for a turn.
struct TaskEnd(Arc<WatchedTask>);

impl Drop for TaskEnd {
    fn drop(&mut self) {
        let waker = self.0.waker().take();
        self.0.overdue.waits().end(self.0.number);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use tokio::sync::mpsc;
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_what_passes_between_a_wake_and_the_turn_counts() {
        let (overdue, (sender, mut receiver)) =
            (Overdue::from(Duration::ZERO), mpsc::unbounded_channel());
        let mut task =
            Box::pin(overdue.watch(async move { while let Some(()) = receiver.recv().await {} }));
        let mut turn = async || poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx).is_ready())).await;
        advance(SECOND).await;
        assert!(!turn().await);
        advance(SECOND).await;
        assert_eq!(overdue.total(), SECOND);
        // It is woken twice, and waits since the first time.
        for _ in 0..2 {
            sender.send(()).unwrap();
            advance(SECOND).await;
        }
        assert_eq!(overdue.total(), 3 * SECOND);
        assert!(!turn().await);
        advance(SECOND).await;
        assert_eq!(overdue.total(), 3 * SECOND);
        drop(sender);
        advance(SECOND).await;
        assert!(turn().await);
        assert_eq!(overdue.total(), 4 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn short_waits_do_not_count_nor_do_tasks_that_are_gone() {
        let overdue = Overdue::from(2 * SECOND);
        let (sender, mut receiver) = mpsc::unbounded_channel::<()>();
        let first = overdue.watch(async {});
        let mut second = Box::pin(overdue.watch(async move { receiver.recv().await }));
        advance(SECOND).await;
        assert_eq!(overdue.total(), Duration::ZERO);
        drop(first);
        advance(SECOND).await;
        assert_eq!(overdue.total(), 2 * SECOND);
        assert!(poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await);
        drop(second);
        drop(sender);
        advance(2 * SECOND).await;
        assert_eq!(overdue.total(), 2 * SECOND);
    }
}
