//! The state of a call. Calls are futures that can still be changed by their methods.

use std::fmt;
use std::task::{Context, Poll, ready};

use super::Limit;
use super::cold_drop::ColdDrop;
use super::detached::BoxedAnswer;
use super::engine::RateLimiter;
use super::rate_limited::RateLimited;
use crate::backend::{Answer, BackendError, IntoKey, Key};

/// The store is not asked before the first poll.
pub(super) enum Progress<T> {
    New,
    Pending(ColdDrop<Option<BoxedAnswer<T>>>),
    Done,
}

impl<T> Progress<T> {
    /// Waits for the answer. A call that was answered stays pending, as one that was not asked.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, BackendError>> {
        let Self::Pending(pending) = self else { return Poll::Pending };
        let Some(future) = &mut **pending else { return Poll::Pending };
        let answer = ready!(future.as_mut().poll(cx));
        *self = Self::Done;
        Poll::Ready(answer)
    }

    pub(super) fn wait_for(&mut self, answer: BoxedAnswer<T>) {
        *self = Self::Pending(ColdDrop::new(Some(answer)));
    }

    /// Asks the store at the first poll, and waits for its answer.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        ask: impl FnOnce() -> Answer<T>,
    ) -> Poll<Result<T, BackendError>> {
        if let Self::New = self {
            *self = Self::Done;
            match ask() {
                Answer::Ready(answer) => return Poll::Ready(answer),
                Answer::Pending(future) => self.wait_for(future),
            }
        }
        self.poll_answer(cx)
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

/// A call about the buckets that a limit has for a key.
pub(super) struct BucketCall<'l, T> {
    pub(super) limiter: &'l RateLimiter,
    pub(super) limit: &'l Limit,
    pub(super) key: Key,
    pub(super) progress: Progress<T>,
}

impl<'l, T> BucketCall<'l, T> {
    #[inline]
    pub(super) const fn new(limiter: &'l RateLimiter, limit: &'l Limit) -> Self {
        Self { limiter, limit, key: Key::GLOBAL, progress: Progress::New }
    }

    #[inline]
    pub(super) fn set_key(&mut self, key: impl IntoKey) {
        self.progress.restart();
        self.key = key.into_key();
    }
}

impl<T> BucketCall<'_, T> {
    /// Takes the numbers that buckets count in now, before the store is asked.
    ///
    /// # Errors
    ///
    /// If no bucket can be counted, as the limit grants nothing.
    pub(super) fn begin_counting(&mut self) -> Result<(), RateLimited> {
        if let Progress::New = self.progress {
            self.limit = self.limiter.counting(self.limit);
            if self.limit.quota().is_none() && !self.limiter.state.is_off {
                self.progress = Progress::Done;
                let refused = RateLimited::refused_for_good(self.limit, 0);
                return Err(refused.with_speech(&self.limiter.state.speech));
            }
        }
        Ok(())
    }
}

/// Without the key, which may be personal data.
impl<T> fmt::Debug for BucketCall<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, progress) = (self.limit.name(), self.progress.name());
        f.debug_struct("BucketCall").field("limit", &limit).field("progress", &progress).finish()
    }
}
