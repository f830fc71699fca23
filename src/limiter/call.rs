//! The questions to a limiter, to be completed and awaited.

use std::fmt;
use std::future::{self, Ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Decision, Error, Limit, RateLimiter, Standing};
use crate::algebra::Terms;
use crate::backend::{Answer, Applied, BackendError, BucketId, Charge, Key};

/// What is asked of one bucket; the calls differ in what they do with it.
#[derive(Clone, Debug)]
struct Target<'a> {
    limiter: &'a RateLimiter,
    limit: &'a Limit,
    key: Key,
}

impl<'a> Target<'a> {
    const fn new(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self { limiter, limit, key: Key::GLOBAL }
    }

    fn id(&self) -> BucketId<'_> {
        BucketId::new(self.limit.name(), &self.key)
    }
}

/// A request for tokens, made by [`RateLimiter::limit`] and [`RateLimiter::check`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct LimitCall<'a> {
    target: Target<'a>,
    cost: u64,
    takes: bool,
}

impl<'a> LimitCall<'a> {
    pub(super) const fn taking(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self { target: Target::new(limiter, limit), cost: 1, takes: true }
    }

    pub(super) const fn looking(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self { target: Target::new(limiter, limit), cost: 1, takes: false }
    }

    /// Whose tokens to take; everybody's if not set.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.target.key = key.into();
        self
    }

    /// How many tokens to take; one if not set.
    ///
    /// Zero asks whether the bucket is out of debt.
    pub const fn cost(mut self, tokens: u64) -> Self {
        self.cost = tokens;
        self
    }

    fn ask(&self) -> Result<Answer<Applied>, Error> {
        let Target { limiter, limit, .. } = self.target;
        let units = charged_units(limit, self.cost)?;
        let make = if self.takes { Charge::take } else { Charge::look };
        Ok(limiter.backend().apply(&[make(self.target.id(), limit.bucket(), units)]))
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

impl IntoFuture for LimitCall<'_> {
    type Output = Result<Decision, Error>;
    type IntoFuture = Call<Decision>;

    fn into_future(self) -> Call<Decision> {
        let limit = self.target.limit;
        match self.ask() {
            Ok(answer) => Call::of(answer, limit, Decision::new),
            Err(error) => Call::now(Err(error)),
        }
    }
}

/// A look at a bucket, made by [`RateLimiter::value`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct ValueCall<'a> {
    target: Target<'a>,
}

impl<'a> ValueCall<'a> {
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self { target: Target::new(limiter, limit) }
    }

    /// Whose bucket to look at; everybody's if not set.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.target.key = key.into();
        self
    }
}

impl IntoFuture for ValueCall<'_> {
    type Output = Result<Standing, Error>;
    type IntoFuture = Call<Standing>;

    fn into_future(self) -> Call<Standing> {
        let Target { limiter, limit, .. } = self.target;
        let look = Charge::look(self.target.id(), limit.bucket(), 0);
        Call::of(limiter.backend().apply(&[look]), limit, Standing::first)
    }
}

/// A wish to forget a bucket, made by [`RateLimiter::reset`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct ResetCall<'a> {
    target: Target<'a>,
}

impl<'a> ResetCall<'a> {
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self { target: Target::new(limiter, limit) }
    }

    /// Whose bucket to forget; everybody's if not set.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.target.key = key.into();
        self
    }
}

impl IntoFuture for ResetCall<'_> {
    type Output = Result<(), Error>;
    type IntoFuture = Call<()>;

    fn into_future(self) -> Call<()> {
        let Target { limiter, limit, .. } = self.target;
        Call::of(limiter.backend().reset(self.target.id()), limit, |_, ()| Some(()))
    }
}

/// The future of every call: an answer that is there already, or comes from the backend.
///
/// # Cancel safety
///
/// Dropping it is safe; whether an operation that was sent takes effect is then unknown.
#[must_use = "futures do nothing unless polled"]
pub struct Call<T>(State<T>);

enum State<T> {
    Now(Ready<Result<T, Error>>),
    Later(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

impl<T> Call<T> {
    fn now(answer: Result<T, Error>) -> Self {
        Self(State::Now(future::ready(answer)))
    }
}

impl<T: 'static> Call<T> {
    /// Reads a backend's answer; `None` from `read` means that it left something out.
    fn of<A: Send + 'static>(
        answer: Answer<A>,
        limit: &Limit,
        read: fn(&Limit, A) -> Option<T>,
    ) -> Self {
        let finish = move |limit: &Limit, answer: Result<A, BackendError>| match answer {
            Ok(answer) => read(limit, answer).ok_or_else(|| Error::incomplete(limit)),
            Err(error) => Err(Error::backend(limit, error)),
        };
        match answer {
            Answer::Now(answer) => Self::now(finish(limit, answer)),
            Answer::Later(future) => {
                let limit = limit.clone();
                Self(State::Later(Box::pin(async move { finish(&limit, future.await) })))
            }
        }
    }
}

impl<T: Unpin> Future for Call<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Now(ready) => Pin::new(ready).poll(cx),
            State::Later(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            State::Now(_) => f.write_str("Call(now)"),
            State::Later(_) => f.write_str("Call(later)"),
        }
    }
}
