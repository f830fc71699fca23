//! Answers that take effect although their caller has gone.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::backend::{Answer, BackendError};

type BoxedAnswer<T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>;

/// An answer that goes on in a task of its own if it is dropped before it is there, on the tokio
/// runtime in which it is dropped. Outside of a runtime it is dropped for good.
///
/// For answers that must be acted on: a reservation that has to be given up, tokens that come back.
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

    /// Passes the answer on without waiting for it.
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
            // A future that has given its answer is not polled again.
            Self::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Pending(slot) => {
                // Out of its place, so that one which panics is not polled again by a task.
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
