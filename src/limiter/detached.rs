//! Answers that must take effect even if the caller has gone.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::backend::{Answer, BackendError};

pub(super) type BoxedAnswer<T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>;

/// An answer that is completed by a task if it is dropped before it has arrived.
///
/// The task runs on the tokio runtime in which the answer is dropped. Outside of a runtime, the
/// answer is dropped and its effect may be lost. It is for answers that must be acted on:
/// reservations to be given up, tokens that come back.
pub(crate) enum DetachOnDrop<T: Send + 'static> {
    Ready(Option<Result<T, BackendError>>),
    Pending(Option<BoxedAnswer<T>>),
}

impl<T: Send + 'static> DetachOnDrop<T> {
    pub(crate) fn new(answer: Answer<T>) -> Self {
        match answer {
            Answer::Ready(answer) => Self::Ready(Some(answer)),
            Answer::Pending(future) => Self::Pending(Some(future)),
        }
    }

    /// Calls `finish` with the answer, in a task if it has not arrived.
    pub(crate) fn finish_with(
        mut self,
        finish: impl FnOnce(Result<T, BackendError>) + Send + 'static,
    ) {
        match &mut self {
            Self::Ready(answer) => {
                if let Some(answer) = answer.take() {
                    finish(answer);
                }
            }
            Self::Pending(future) => {
                if let (Some(future), Ok(runtime)) =
                    (future.take(), tokio::runtime::Handle::try_current())
                {
                    runtime.spawn(async move { finish(future.await) });
                }
            }
        }
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            // A future that has completed stays pending.
            Self::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Pending(slot) => {
                // Taken out while it is polled: if it panics, no task polls it again on drop.
                let Some(mut future) = slot.take() else { return Poll::Pending };
                let polled = future.as_mut().poll(cx);
                if polled.is_pending() {
                    *slot = Some(future);
                }
                polled
            }
        }
    }
}

impl<T: Send + 'static> Unpin for DetachOnDrop<T> {}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let Self::Pending(future) = self
            && let (Some(future), Ok(runtime)) =
                (future.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(future);
        }
    }
}

impl<T: Send + 'static> fmt::Debug for DetachOnDrop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "DetachOnDrop(ready)",
            Self::Pending(_) => "DetachOnDrop(pending)",
        })
    }
}
