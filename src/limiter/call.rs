//! The calls of a limiter, to be completed and awaited.

use std::time::Duration;

use super::ask::Wish;
use super::question::{Call, Question};
use super::{Decision, Error, Limit, RateLimiter, Standing};
use crate::backend::Key;

/// A request for tokens, made by [`RateLimiter::limit`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct LimitCall<'a, 'l>(Question<'a, 'l>);

impl<'a: 'l, 'l> LimitCall<'a, 'l> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'l Limit) -> Self {
        Self(Question::new(limiter, limit, Wish::Take))
    }

    /// Whose tokens to take; everybody's if not set.
    #[inline]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        if let Some(ask) = self.0.last() {
            ask.key = key.into();
        }
        self
    }

    /// How many tokens to take; one if not set.
    ///
    /// Zero asks whether the bucket is out of debt.
    #[inline]
    pub fn cost(mut self, tokens: u64) -> Self {
        if let Some(ask) = self.0.last() {
            ask.price(tokens);
        }
        self
    }

    /// Reserves what is short: the answer is then the instant at which the work may run, however
    /// far away that is.
    ///
    /// The bucket goes into debt for it, down to its quota's
    /// [`max_reserved`](crate::Quota::max_reserved). What would go deeper is refused.
    pub const fn reserve(self) -> Self {
        self.reserve_within(Duration::MAX)
    }

    /// [Reserves](Self::reserve) what is short, if its turn comes within this time. What would have to
    /// wait for longer is refused at once.
    pub const fn reserve_within(mut self, max_wait: Duration) -> Self {
        self.0.wish = Wish::Reserve(max_wait);
        self
    }

    /// Makes the wait longer at random, be it for a reservation or for coming back: by at most this
    /// much, and never shorter.
    ///
    /// Those who would come at the same instant, such as the start of a window, then come one after
    /// another. Within [`reserve_within`](Self::reserve_within) it gets smaller where the wait would
    /// get too long. Work that runs later by this much may meet work that was to run later: with
    /// jitter, the bound on what runs in some time is that of a time which is longer by `spread`,
    /// and reserved work runs in the order of its instants with jitter.
    pub const fn jitter(mut self, spread: Duration) -> Self {
        self.0.spread(spread);
        self
    }
}

impl<'a: 'l, 'l> IntoFuture for LimitCall<'a, 'l> {
    type Output = Result<Decision<'l>, Error>;
    type IntoFuture = Call<'a, 'l, Decision<'l>>;

    #[inline]
    fn into_future(self) -> Call<'a, 'l, Decision<'l>> {
        Call::new(self.0)
    }
}

/// A look at what a request would be told, made by [`RateLimiter::check`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct CheckCall<'a, 'l>(Question<'a, 'l>);

impl<'a: 'l, 'l> CheckCall<'a, 'l> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'l Limit) -> Self {
        Self(Question::new(limiter, limit, Wish::Look))
    }

    /// Whose tokens to look for; everybody's if not set.
    #[inline]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        if let Some(ask) = self.0.last() {
            ask.key = key.into();
        }
        self
    }

    /// How many tokens to look for; one if not set.
    ///
    /// Zero asks whether the bucket is out of debt.
    #[inline]
    pub fn cost(mut self, tokens: u64) -> Self {
        if let Some(ask) = self.0.last() {
            ask.price(tokens);
        }
        self
    }
}

impl<'a: 'l, 'l> IntoFuture for CheckCall<'a, 'l> {
    type Output = Result<Decision<'l>, Error>;
    type IntoFuture = Call<'a, 'l, Decision<'l>>;

    #[inline]
    fn into_future(self) -> Call<'a, 'l, Decision<'l>> {
        Call::new(self.0)
    }
}

/// A look at a bucket, made by [`RateLimiter::value`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct ValueCall<'a>(Question<'a, 'a>);

impl<'a> ValueCall<'a> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self(Question::new(limiter, limit, Wish::Look))
    }

    /// Whose bucket to look at; everybody's if not set.
    #[inline]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        if let Some(ask) = self.0.last() {
            ask.key = key.into();
        }
        self
    }
}

impl<'a> IntoFuture for ValueCall<'a> {
    type Output = Result<Standing<'a>, Error>;
    type IntoFuture = Call<'a, 'a, Standing<'a>>;

    #[inline]
    fn into_future(self) -> Call<'a, 'a, Standing<'a>> {
        Call::new(self.0)
    }
}

/// A wish to forget a bucket, made by [`RateLimiter::reset`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct ResetCall<'a>(Question<'a, 'a>);

impl<'a> ResetCall<'a> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'a Limit) -> Self {
        Self(Question::new(limiter, limit, Wish::Take))
    }

    /// Whose bucket to forget; everybody's if not set.
    #[inline]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        if let Some(ask) = self.0.last() {
            ask.key = key.into();
        }
        self
    }
}

impl<'a> IntoFuture for ResetCall<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = Call<'a, 'a, ()>;

    #[inline]
    fn into_future(self) -> Call<'a, 'a, ()> {
        Call::new(self.0)
    }
}
