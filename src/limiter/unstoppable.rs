//! Answers that are heard although nobody waits for them.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::backend::{Answer, BackendError};

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>;

/// An answer that goes on in a task of its own when it is dropped before it is there, on the tokio
/// runtime in which it is dropped. Outside of one, nobody hears it.
pub(crate) enum Unstoppable<T: Send + 'static> {
    Now(Option<Result<T, BackendError>>),
    Later(Option<Boxed<T>>),
}

impl<T: Send + 'static> Unstoppable<T> {
    pub(crate) fn new(answer: Answer<T>) -> Self {
        match answer {
            Answer::Ready(answer) => Self::Now(Some(answer)),
            Answer::Pending(future) => Self::Later(Some(future)),
        }
    }

    /// Does not wait for the answer.
    pub(crate) fn finish_with(
        mut self,
        hear: impl FnOnce(Result<T, BackendError>) + Send + 'static,
    ) {
        match &mut self {
            Self::Now(answer) => {
                if let Some(answer) = answer.take() {
                    hear(answer);
                }
            }
            Self::Later(future) => {
                if let (Some(future), Ok(runtime)) =
                    (future.take(), tokio::runtime::Handle::try_current())
                {
                    runtime.spawn(async move { hear(future.await) });
                }
            }
        }
    }
}

impl<T: Send + 'static> Future for Unstoppable<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            // An answer that was given is not asked for again.
            Self::Now(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(slot) => {
                let Some(future) = slot else { return Poll::Pending };
                let answer = std::task::ready!(future.as_mut().poll(cx));
                *slot = None;
                Poll::Ready(answer)
            }
        }
    }
}

impl<T: Send + 'static> Unpin for Unstoppable<T> {}

impl<T: Send + 'static> Drop for Unstoppable<T> {
    fn drop(&mut self) {
        if let Self::Later(future) = self
            && let (Some(future), Ok(runtime)) =
                (future.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(future);
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Unstoppable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Unstoppable(now)",
            Self::Later(_) => "Unstoppable(later)",
        })
    }
}
