//! How long a task had to wait for its turn.
//!
//! # Design
//!
//! A flood of one client can keep all threads of this process busy. Then the task that writes calls and
//! reads answers runs long after there was something to write or to read, and a timer alone would take
//! that for the silence of the server. So the waker of this task notes when it was woken, and each turn
//! adds the time since then.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// How long a task was ready to run, and did not.
#[derive(Debug)]
pub(super) struct Overdue(Mutex<OverdueState>);

#[derive(Debug)]
struct OverdueState {
    /// When the task was woken for the turn that it has not had yet.
    since: Option<Instant>,
    /// How long it has waited for its former turns.
    before: Duration,
    task: Waker,
}

impl OverdueState {
    fn total(&self) -> Duration {
        self.before.saturating_add(self.since.map(|since| since.elapsed()).unwrap_or_default())
    }
}

impl Overdue {
    /// For a task that is about to have its first turn.
    pub(super) fn new() -> Arc<Self> {
        let (since, before) = (Some(Instant::now()), Duration::ZERO);
        let task = Waker::noop().clone();
        Arc::new(Self(Mutex::new(OverdueState { since, before, task })))
    }

    /// Runs the task.
    pub(super) async fn watch<T>(self: Arc<Self>, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        let waker = Waker::from(Arc::clone(&self));
        poll_fn(|cx| {
            {
                // Before the task looks for work: what comes after the look wakes it for another turn.
                let mut state = self.state();
                state.before = state.total();
                state.since = None;
                state.task.clone_from(cx.waker());
            }
            task.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }

    /// How long it has waited in all, with the turn that it waits for now.
    pub(super) fn total(&self) -> Duration {
        self.state().total()
    }

    /// A poisoned lock is harmless: nothing panics while it is held.
    fn state(&self) -> MutexGuard<'_, OverdueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Overdue {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            let mut state = self.state();
            // Of several wakes before a turn, the first counts.
            state.since.get_or_insert_with(Instant::now);
            state.task.clone()
        };
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use tokio::sync::mpsc;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_passes_between_a_wake_and_the_turn_counts() {
        const SECOND: Duration = Duration::from_secs(1);
        let (overdue, (sender, mut receiver)) = (Overdue::new(), mpsc::unbounded_channel::<()>());
        let task = Arc::clone(&overdue).watch(async { while receiver.recv().await.is_some() {} });
        let mut task = pin!(task);
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
}
