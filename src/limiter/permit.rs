//! Leave to run, and the bill afterwards.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use super::ask::Asks;
use super::share::{Part, Share, Shares, said};
use super::unstoppable::Unstoppable;
use super::{Error, Limit, RateLimiter, Standing};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Applied, BackendError, Reading, Refund, Refunded};
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
pub struct Permit<'a>(Paid<'a>);

enum Paid<'a> {
    /// What was asked and what was answered, read only by who wants to know.
    Here { limiter: &'a RateLimiter, limit: &'a Limit, asks: Asks<'a>, applied: Applied },
    /// The same on its own.
    Own(Box<Own>),
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standings: Vec<_> = self.standings().collect();
        f.debug_struct("Permit").field("standings", &standings).field("at", &self.at()).finish()
    }
}

struct Own {
    limiter: RateLimiter,
    shares: Shares,
    at: Timestamp,
}

impl<'a> Permit<'a> {
    /// Leave by a complete answer.
    #[inline(always)]
    pub(super) const fn here(
        limiter: &'a RateLimiter,
        limit: &'a Limit,
        asks: Asks<'a>,
        applied: Applied,
    ) -> Self {
        Self(Paid::Here { limiter, limit, asks, applied })
    }

    /// The whole tokens that are left; of several limits, the least that any has.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.standings().map(|standing| standing.remaining()).min().unwrap_or(0)
    }

    /// How the limit stood after this was decided; of several, the first.
    #[must_use]
    pub fn standing(&self) -> Standing<'a> {
        match &self.0 {
            Paid::Own(own) => own.shares.standing().clone(),
            // There always is a first.
            Paid::Here { limit, .. } => {
                self.standings().next().unwrap_or_else(|| Standing::of(limit, &[], self.at()))
            }
        }
    }

    /// How all limits stood after this was decided, in the order in which they were named.
    pub fn standings(&self) -> impl Iterator<Item = Standing<'a>> {
        let (here, own) = match &self.0 {
            Paid::Here { asks, applied, .. } => {
                let here = said(asks.as_slice(), applied)
                    .map(|(ask, readings)| Standing::of(ask.limit, readings, applied.now()));
                (Some(here), None)
            }
            Paid::Own(own) => (None, Some(own.shares.iter().map(|share| share.standing.clone()))),
        };
        here.into_iter().flatten().chain(own.into_iter().flatten())
    }

    /// The instant from which the work may run: that of the decision, or of the reservation.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match &self.0 {
            Paid::Here { applied, .. } => applied.now(),
            Paid::Own(own) => own.at,
        }
    }

    /// This permit on its own, to be moved to where the limiter and the limit are not.
    #[must_use]
    pub fn into_owned(self) -> Permit<'static> {
        Permit(Paid::Own(self.own()))
    }

    fn own(self) -> Box<Own> {
        match self.0 {
            Paid::Own(own) => own,
            Paid::Here { limiter, limit, asks, applied } => {
                let at = applied.now();
                // Nobody is given leave who has asked for nothing.
                let shares = Shares::of(asks.as_slice(), &applied)
                    .unwrap_or_else(|| Shares::none(limit, at));
                Box::new(Own { limiter: limiter.clone(), shares, at })
            }
        }
    }

    /// Says what the work really cost: what is left of its tokens is given back, as far as it fits
    /// in, and what is short is taken, into debt if need be.
    ///
    /// Of several limits, those are concerned for which a cost was said, or all of them if none was: a
    /// limit on requests keeps its one token, whatever the tokens of a model come to. A limit in
    /// shards gets its tokens back where they were taken.
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
        self.settled(Some(actual))
    }

    /// Gives all tokens back to all limits: the work has not run, or is to cost nothing.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    pub fn refund(self) -> Settling {
        self.settled(None)
    }
}

impl Permit<'_> {
    fn settled(&self, actual: Option<u64>) -> Settling {
        match &self.0 {
            Paid::Own(own) => {
                let parts = own.shares.iter().map(Share::part);
                Settling::new(&own.limiter, own.shares.standing().limit(), parts, actual)
            }
            Paid::Here { limiter, limit, asks, applied } => {
                let parts = said(asks.as_slice(), applied).map(|(ask, said)| Part::of(ask, said));
                Settling::new(limiter, limit, parts, actual)
            }
        }
    }
}

impl Permit<'static> {
    pub(super) fn owned(limiter: RateLimiter, shares: Shares, at: Timestamp) -> Self {
        Self(Paid::Own(Box::new(Own { limiter, shares, at })))
    }
}

/// What a layer needs to settle a request by, and no more.
#[cfg(feature = "middleware")]
#[derive(Debug)]
pub(crate) struct Bill {
    limiter: RateLimiter,
    shares: Shares,
}

#[cfg(feature = "middleware")]
impl Bill {
    pub(crate) const fn new(limiter: RateLimiter, shares: Shares) -> Self {
        Self { limiter, shares }
    }

    /// Settles without waiting for it.
    pub(crate) fn settle(self, actual: u64) {
        let (first, parts) = (self.shares.standing().limit(), self.shares.iter().map(Share::part));
        drop(Settling::new(&self.limiter, first, parts, Some(actual)));
    }
}

/// The future of [`Permit::settle`]: how the limit stands then; of several, the first that is
/// concerned.
#[derive(Debug)]
#[must_use = "whether it worked is known only when it is awaited"]
pub struct Settling {
    answer: Unstoppable<Refunded>,
    limit: Limit,
    /// What stays taken of its buckets that are concerned.
    kept: SmallVec<[Units; 2]>,
}

impl Settling {
    /// `None` gives everything back.
    fn new<'p>(
        limiter: &RateLimiter,
        first: &Limit,
        parts: impl Iterator<Item = Part<'p>> + Clone,
        actual: Option<u64>,
    ) -> Self {
        // Where a cost was said, what only counts requests is left alone.
        let any = actual.is_some() && parts.clone().any(|part| part.priced);
        let (mut limit, mut kept) = (None, SmallVec::new());
        let mut refunds = SmallVec::<[Refund<'_>; 4]>::new();
        for part in parts.filter(|part| part.priced || !any) {
            let is_first = limit.is_none();
            limit.get_or_insert(part.limit);
            for (refund, keeps) in part.refunds(actual.unwrap_or(0)) {
                refunds.push(refund);
                if is_first {
                    kept.push(keeps);
                }
            }
        }
        let answer = Unstoppable::new(limiter.backend().refund(&refunds));
        Self { answer, limit: limit.unwrap_or(first).clone(), kept }
    }
}

impl Future for Settling {
    type Output = Result<Standing<'static>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let standing = answer.and_then(|refunded| {
            let states = refunded.states().get(..self.kept.len()).unwrap_or_default();
            let reading = |(state, kept): (&State, &Units)| {
                Reading::new(Verdict::Admitted, *state, Duration::ZERO).taking(*kept)
            };
            let readings: SmallVec<[Reading; 2]> =
                states.iter().zip(&self.kept).map(reading).collect();
            if readings.is_empty() {
                return Err(BackendError::incomplete());
            }
            Ok(Standing::of(&self.limit, &readings, refunded.now()).into_owned())
        });
        Poll::Ready(standing.map_err(|error| Error::backend(&self.limit, error)))
    }
}
