//! Leave to run, and the bill afterwards.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::unstoppable::Unstoppable;
use super::{Error, Limit, RateLimiter, Standing};
use crate::algebra::{Units, Verdict};
use crate::backend::{BackendError, BucketId, Key, Reading, Refund, Refunded};
use crate::clock::Timestamp;

/// Leave to run the work now.
///
/// Its tokens are taken, unless it comes from [`check`](RateLimiter::check). Dropping it gives
/// nothing back: the work is taken to have cost what was asked for.
///
/// # Examples
///
/// Work whose cost is known only when it is done pays an estimate first, and is settled then:
///
/// ```
/// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};
///
/// static LLM_TOKENS: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// let permit = limiter.limit(&LLM_TOKENS).cost(10_000).await?.into_result()?;
/// assert_eq!(permit.remaining(), 30_000);
/// let standing = permit.settle(4_000).await?;
/// assert_eq!(standing.remaining(), 36_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Permit<'a> {
    limiter: Handle<'a>,
    key: Key,
    /// What was taken.
    units: Units,
    standing: Standing,
    at: Timestamp,
}

/// A limiter is borrowed as long as that does, since every request would have to count a clone.
enum Handle<'a> {
    Borrowed(&'a RateLimiter),
    Owned(RateLimiter),
}

impl Handle<'_> {
    const fn get(&self) -> &RateLimiter {
        match self {
            Self::Borrowed(limiter) => limiter,
            Self::Owned(limiter) => limiter,
        }
    }
}

impl fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl<'a> Permit<'a> {
    pub(super) const fn borrowed(
        limiter: &'a RateLimiter,
        key: Key,
        units: Units,
        standing: Standing,
    ) -> Self {
        let at = standing.at();
        Self { limiter: Handle::Borrowed(limiter), key, units, standing, at }
    }

    /// The whole tokens that are left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.standing.remaining()
    }

    /// How the limit stood after this was decided.
    #[must_use]
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The instant from which the work may run: that of the decision, or of the reservation.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// This permit on its own, to be moved to where the limiter is not.
    #[must_use]
    pub fn into_owned(self) -> Permit<'static> {
        let Self { limiter, key, units, standing, at } = self;
        Permit { limiter: Handle::Owned(limiter.get().clone()), key, units, standing, at }
    }

    /// Says what the work really cost: what is left of its tokens is given back, as far as it fits
    /// in, and what is short is taken, into debt if need be.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the backend could not do it.
    ///
    /// # Cancel safety
    ///
    /// The store is asked when this returns, and heard to the end if the future is dropped. One that
    /// answers later needs a tokio runtime for that, the one in which the future is dropped.
    pub fn settle(self, actual: u64) -> Settling {
        let Self { limiter, key, units, standing, .. } = self;
        let limit = standing.into_limit();
        Settling::new(limiter.get(), &key, limit, units, actual)
    }

    /// Gives all tokens back: the work has not run, or is to cost nothing.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    pub fn refund(self) -> Settling {
        self.settle(0)
    }
}

impl Permit<'static> {
    pub(super) const fn owned(
        limiter: RateLimiter,
        key: Key,
        units: Units,
        standing: Standing,
        at: Timestamp,
    ) -> Self {
        Self { limiter: Handle::Owned(limiter), key, units, standing, at }
    }
}

/// What a layer needs to settle a request by, and no more.
#[cfg(feature = "middleware")]
#[derive(Debug)]
pub(crate) struct Bill {
    limiter: RateLimiter,
    limit: Limit,
    key: Key,
    taken: Units,
}

#[cfg(feature = "middleware")]
impl Bill {
    pub(crate) const fn new(limiter: RateLimiter, limit: Limit, key: Key, taken: Units) -> Self {
        Self { limiter, limit, key, taken }
    }

    /// Settles without waiting for it.
    pub(crate) fn settle(self, actual: u64) {
        let Self { limiter, limit, key, taken } = self;
        drop(Settling::new(&limiter, &key, limit, taken, actual));
    }
}

/// The future of [`Permit::settle`]: how the limit stands then.
#[derive(Debug)]
#[must_use = "whether it worked is known only when it is awaited"]
pub struct Settling {
    answer: Unstoppable<Refunded>,
    limit: Limit,
}

impl Settling {
    fn new(limiter: &RateLimiter, key: &Key, limit: Limit, taken: Units, actual: u64) -> Self {
        let bucket = limit.bucket();
        // More than can be counted leaves a bucket as deep as numbers go.
        let cost = bucket.units(actual).unwrap_or(Units::MAX);
        let refund =
            Refund::new(BucketId::new(limit.name(), key), bucket, taken.saturating_sub(cost));
        let answer = Unstoppable::new(limiter.backend().refund(&[refund]));
        Self { answer, limit }
    }
}

impl Future for Settling {
    type Output = Result<Standing, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let standing = answer.and_then(|refunded| {
            let state = *refunded.states().first().ok_or_else(BackendError::incomplete)?;
            let reading = Reading::new(Verdict::Admitted, state, std::time::Duration::ZERO);
            Ok(Standing::new(self.limit.clone(), reading, refunded.now()))
        });
        Poll::Ready(standing.map_err(|error| Error::backend(&self.limit, error)))
    }
}
