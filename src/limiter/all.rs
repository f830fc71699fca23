//! Several limits at once.

use std::time::Duration;

use super::ask::Wish;
use super::question::{Call, Question};
use super::{Decision, Error, Limit, RateLimiter};
use crate::backend::Key;

/// The beginning of a request for tokens of several limits, made by [`RateLimiter::all`]: name the
/// first.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is asked yet"]
pub struct All<'a> {
    limiter: &'a RateLimiter,
}

impl<'a> All<'a> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter) -> Self {
        Self { limiter }
    }

    /// Takes from this limit: one token, from the bucket that everybody shares, unless
    /// [`key`](AllCall::key) and [`cost`](AllCall::cost) behind it say otherwise.
    pub const fn limit<'l>(self, limit: &'l Limit) -> AllCall<'a, 'l>
    where
        'a: 'l,
    {
        AllCall(Question::new(self.limiter, limit, Wish::Take))
    }
}

/// A request for tokens of several limits; await it.
///
/// [`key`](Self::key) and [`cost`](Self::cost) are those of the limit that was named last.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct AllCall<'a, 'l>(Question<'a, 'l>);

impl<'a: 'l, 'l> AllCall<'a, 'l> {
    /// Takes from this limit as well. A bucket that is named twice pays twice.
    pub fn limit(self, limit: &'l Limit) -> Self {
        Self(self.0.and(limit))
    }

    /// Whose tokens to take of the last limit; everybody's if not set.
    #[inline]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        if let Some(ask) = self.0.last() {
            ask.key = key.into();
        }
        self
    }

    /// How many tokens to take of the last limit; one if not set.
    ///
    /// Zero asks whether the bucket is out of debt.
    #[inline]
    pub fn cost(mut self, tokens: u64) -> Self {
        if let Some(ask) = self.0.last() {
            ask.price(tokens);
        }
        self
    }

    /// Reserves what is short, of all limits or of none: the work may run when the last of them has
    /// its tokens.
    ///
    /// From now until then the tokens of the others are held for it, and these limits gain more
    /// meanwhile: their bound counts the work at the instant when they had its tokens, not when it
    /// runs. To hold up everybody else until then would be worse. See also
    /// [`LimitCall::reserve`](super::LimitCall::reserve).
    pub const fn reserve(self) -> Self {
        self.reserve_within(Duration::MAX)
    }

    /// [Reserves](Self::reserve) what is short, if the turn comes within this time. What would have
    /// to wait for longer is refused at once.
    pub const fn reserve_within(mut self, max_wait: Duration) -> Self {
        self.0.wish = Wish::Reserve(max_wait);
        self
    }

    /// Makes the wait longer at random, by at most this much and never shorter.
    ///
    /// See [`LimitCall::jitter`](super::LimitCall::jitter).
    pub const fn jitter(mut self, spread: Duration) -> Self {
        self.0.spread(spread);
        self
    }
}

impl<'a: 'l, 'l> IntoFuture for AllCall<'a, 'l> {
    type Output = Result<Decision<'l>, Error>;
    type IntoFuture = Call<'a, 'l, Decision<'l>>;

    #[inline]
    fn into_future(self) -> Call<'a, 'l, Decision<'l>> {
        Call::new(self.0)
    }
}
