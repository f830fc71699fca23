//! The questions to a limiter, to be completed and awaited.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Decision, Error, Limit, RateLimiter, Standing};
use crate::algebra::Terms;
use crate::backend::{Answer, BackendError, BucketId, Charge, Key};

/// What is asked, and of which bucket.
#[derive(Clone, Debug)]
struct Question<'a> {
    limiter: &'a RateLimiter,
    limit: &'a Limit,
    key: Key,
    cost: u64,
    takes: bool,
}

impl<'a> Question<'a> {
    const fn new(limiter: &'a RateLimiter, limit: &'a Limit, cost: u64, takes: bool) -> Self {
        Self { limiter, limit, key: Key::GLOBAL, cost, takes }
    }

    fn id(&self) -> BucketId<'_> {
        BucketId::new(self.limit.name(), &self.key)
    }

    fn decide(self) -> Given<Decision> {
        let units = match charged_units(self.limit, self.cost) {
            Ok(units) => units,
            Err(error) => return Given::Now(Err(error)),
        };
        let make = if self.takes { Charge::take } else { Charge::look };
        let charge = make(self.id(), self.limit.bucket(), units);
        Given::of(self.limiter.backend().apply(&[charge]), self.limit, Decision::new)
    }

    fn value(self) -> Given<Standing> {
        let look = Charge::look(self.id(), self.limit.bucket(), 0);
        Given::of(self.limiter.backend().apply(&[look]), self.limit, Standing::first)
    }

    fn reset(self) -> Given<()> {
        Given::of(self.limiter.backend().reset(self.id()), self.limit, |_, ()| Some(()))
    }
}

/// What a cost comes to, if the limit can ever grant it.
pub(crate) fn charged_units(limit: &Limit, cost: u64) -> Result<i64, Error> {
    let bucket = limit.bucket();
    match bucket.units(cost) {
        Some(units) if !bucket.too_large(cost, Terms::AT_ONCE) => Ok(units),
        _ => Err(Error::too_large(limit, cost)),
    }
}

/// A request for tokens, made by [`RateLimiter::limit`] and [`RateLimiter::check`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct LimitCall<'a>(Question<'a>);

impl<'a> LimitCall<'a> {
    pub(super) const fn taking(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self(Question::new(limiter, limit, 1, true))
    }

    pub(super) const fn looking(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self(Question::new(limiter, limit, 1, false))
    }

    /// Whose tokens to take; everybody's if not set.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.0.key = key.into();
        self
    }

    /// How many tokens to take; one if not set.
    ///
    /// Zero asks whether the bucket is out of debt.
    pub const fn cost(mut self, tokens: u64) -> Self {
        self.0.cost = tokens;
        self
    }
}

impl<'a> IntoFuture for LimitCall<'a> {
    type Output = Result<Decision, Error>;
    type IntoFuture = Call<'a, Decision>;

    fn into_future(self) -> Call<'a, Decision> {
        Call::new(self.0, Question::decide)
    }
}

/// A look at a bucket, made by [`RateLimiter::value`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct ValueCall<'a>(Question<'a>);

impl<'a> ValueCall<'a> {
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self(Question::new(limiter, limit, 0, false))
    }

    /// Whose bucket to look at; everybody's if not set.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.0.key = key.into();
        self
    }
}

impl<'a> IntoFuture for ValueCall<'a> {
    type Output = Result<Standing, Error>;
    type IntoFuture = Call<'a, Standing>;

    fn into_future(self) -> Call<'a, Standing> {
        Call::new(self.0, Question::value)
    }
}

/// A wish to forget a bucket, made by [`RateLimiter::reset`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct ResetCall<'a>(Question<'a>);

impl<'a> ResetCall<'a> {
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self(Question::new(limiter, limit, 0, true))
    }

    /// Whose bucket to forget; everybody's if not set.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.0.key = key.into();
        self
    }
}

impl<'a> IntoFuture for ResetCall<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = Call<'a, ()>;

    fn into_future(self) -> Call<'a, ()> {
        Call::new(self.0, Question::reset)
    }
}

/// The future of every call: asks when it is first polled.
///
/// # Cancel safety
///
/// Dropped before it is polled, it has asked nothing. Dropped later, whether the operation takes
/// effect is unknown; the memory store answers the first poll, so there is no later with it.
#[must_use = "futures do nothing unless polled"]
pub struct Call<'a, T> {
    /// Taken by the first poll.
    question: Option<Question<'a>>,
    ask: fn(Question<'a>) -> Given<T>,
    later: Option<Later<T>>,
}

type Later<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

impl<'a, T> Call<'a, T> {
    const fn new(question: Question<'a>, ask: fn(Question<'a>) -> Given<T>) -> Self {
        Self { question: Some(question), ask, later: None }
    }
}

impl<T> Future for Call<'_, T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(question) = self.question.take() {
            match (self.ask)(question) {
                Given::Now(answer) => return Poll::Ready(answer),
                Given::Later(future) => self.later = Some(future),
            }
        }
        match &mut self.later {
            Some(future) => future.as_mut().poll(cx),
            // A future that has given its answer is not polled again.
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Call<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("asked", &self.question.is_none()).finish_non_exhaustive()
    }
}

/// A backend's answer, in the limiter's terms.
enum Given<T> {
    Now(Result<T, Error>),
    Later(Later<T>),
}

impl<T: 'static> Given<T> {
    /// Reads a backend's answer; `None` from `read` means that it left something out.
    fn of<A: Send + 'static>(
        answer: Answer<A>,
        limit: &Limit,
        read: fn(&Limit, A) -> Option<T>,
    ) -> Self {
        let finish = move |limit: &Limit, answer: Result<A, BackendError>| {
            answer
                .and_then(|answer| read(limit, answer).ok_or_else(BackendError::incomplete))
                .map_err(|error| Error::backend(limit, error))
        };
        match answer {
            Answer::Now(answer) => Self::Now(finish(limit, answer)),
            Answer::Later(future) => {
                let limit = limit.clone();
                Self::Later(Box::pin(async move { finish(&limit, future.await) }))
            }
        }
    }
}
