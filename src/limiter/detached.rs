//! Answers that must take effect even if the caller has gone.

use std::pin::Pin;
use std::task::{Context, Poll};

use scopeguard::{ScopeGuard, guard};

use crate::backend::{Answer, BackendError};

pub(crate) type BoxedAnswer<T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>;

/// An answer that is completed by a task if it is dropped before it has arrived.
///
/// The task runs on the tokio runtime in which the answer is dropped. Outside of a runtime, the
/// answer is dropped and its effect may be lost. It is for answers that must be acted on:
/// reservations to be given up, tokens that come back.
#[derive(Debug)]
pub(crate) struct DetachOnDrop<T: Send + 'static>(Option<Answer<T>>);

impl<T: Send + 'static> DetachOnDrop<T> {
    pub(crate) const fn new(answer: Answer<T>) -> Self {
        Self(Some(answer))
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out while it is polled: if it panics, no task polls it again on drop.
        match self.0.take() {
            Some(Answer::Ready(answer)) => Poll::Ready(answer),
            Some(Answer::Pending(mut future)) => {
                let polled = future.as_mut().poll(cx);
                if polled.is_pending() {
                    self.0 = Some(Answer::Pending(future));
                }
                polled
            }
            // A future that has completed stays pending.
            None => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Unpin for DetachOnDrop<T> {}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let Some(Answer::Pending(future)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(future);
        }
    }
}

/// Asks a store, and has `note` read its answer as soon as it is there, and whether it came at once.
///
/// `note` runs in any case. It reads `None` if the store has failed, if its client panicked, or if the
/// answer is dropped before it has arrived, as when the runtime is shut down.
pub(super) fn noted<T: Send + 'static>(
    ask: impl FnOnce() -> Answer<T>,
    note: impl FnOnce(Option<&T>, bool) + Send + 'static,
) -> Answer<T> {
    // Made before the store is asked, which may panic.
    let note = guard(note, |note| note(None, false));
    match ask() {
        Answer::Ready(answer) => {
            ScopeGuard::into_inner(note)(answer.as_ref().ok(), true);
            Answer::Ready(answer)
        }
        Answer::Pending(answer) => Answer::pending(async move {
            let answer = answer.await;
            ScopeGuard::into_inner(note)(answer.as_ref().ok(), false);
            answer
        }),
    }
}
