//! The state of a call. Calls are futures that can still be changed by their methods.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::backend::{Answer, BackendError};

/// The store is not asked before the first poll.
pub(super) enum Progress<T> {
    New,
    Pending(Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>),
    Done,
}

impl<T> Progress<T> {
    /// Asks the store at the first poll, and waits for its answer.
    #[inline(always)]
    pub(super) fn poll<E>(
        &mut self,
        cx: &mut Context<'_>,
        submit: impl FnOnce() -> Result<Answer<T>, E>,
    ) -> Poll<Result<Result<T, BackendError>, E>> {
        if let Self::New = self {
            *self = Self::Done;
            match submit() {
                Ok(Answer::Ready(answer)) => return Poll::Ready(Ok(answer)),
                Ok(Answer::Pending(future)) => *self = Self::Pending(future),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        // A future that has completed stays pending.
        let Self::Pending(future) = self else { return Poll::Pending };
        let answer = ready!(future.as_mut().poll(cx));
        *self = Self::Done;
        Poll::Ready(Ok(answer))
    }

    /// Drops a pending answer, since the call has changed. A call that was answered stays answered.
    #[inline]
    pub(super) fn restart(&mut self) {
        if let Self::Pending(_) = self {
            *self = Self::New;
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::New => "not asked yet",
            Self::Pending(_) => "asked",
            Self::Done => "answered",
        }
    }
}
