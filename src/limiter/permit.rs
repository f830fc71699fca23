//! Leave to run, and the bill afterwards.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use super::ask::{Ask, Asks};
use super::share::{Part, Share, Shares, said};
use super::standing::Stand;
use super::unstoppable::Unstoppable;
use super::{Error, Limit, RateLimiter, Standing};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Adjustment, Applied, BackendError, Reading};
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
    /// What one limit was asked and has answered, read only by who wants to know: nearly always.
    One { limiter: &'a RateLimiter, ask: Ask<&'a Limit>, now: Timestamp, left: Left },
    /// The same of several.
    Several(Box<Several<'a>>),
    /// The same on its own.
    Own(Box<Own>),
}

/// What a limit holds now, and what was taken from its buckets, of which there are two at most.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) state: State,
    pub(super) taken: [Units; 2],
}

struct Several<'a> {
    limiter: &'a RateLimiter,
    limit: &'a Limit,
    asks: Vec<Ask<&'a Limit>>,
    applied: Applied,
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
    /// Leave by the only limit that was asked.
    #[inline(always)]
    pub(super) const fn of_one(
        limiter: &'a RateLimiter,
        ask: Ask<&'a Limit>,
        now: Timestamp,
        left: Left,
    ) -> Self {
        Self(Paid::One { limiter, ask, now, left })
    }

    /// Leave by a complete answer.
    pub(super) fn here(limiter: &'a RateLimiter, asks: Asks<'a>, applied: Applied) -> Self {
        match asks {
            Asks::One([ask]) => {
                let left = Left::of(ask.limit, applied.readings());
                Self::of_one(limiter, ask, applied.now(), left)
            }
            Asks::Many { limit, asks } => {
                Self(Paid::Several(Box::new(Several { limiter, limit, asks, applied })))
            }
        }
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
            Paid::One { ask, now, left, .. } => Standing::admitted(ask.limit, left.state, *now),
            Paid::Own(own) => own.shares.standing().clone(),
            // There always is a first.
            Paid::Several(several) => self
                .standings()
                .next()
                .unwrap_or_else(|| Standing::of(several.limit, &[], self.at())),
        }
    }

    /// How all limits stood after this was decided, in the order in which they were named.
    pub fn standings(&self) -> impl Iterator<Item = Standing<'a>> {
        let (one, several, own) = match &self.0 {
            Paid::One { .. } => (Some(self.standing()), None, None),
            Paid::Several(several) => (None, Some(several.standings()), None),
            Paid::Own(own) => {
                (None, None, Some(own.shares.iter().map(|share| share.standing.clone())))
            }
        };
        one.into_iter().chain(several.into_iter().flatten()).chain(own.into_iter().flatten())
    }

    /// The instant from which the work may run: that of the decision, or of the reservation.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match &self.0 {
            Paid::One { now, .. } => *now,
            Paid::Several(several) => several.applied.now(),
            Paid::Own(own) => own.at,
        }
    }

    /// This permit on its own, to be moved to where the limiter and the limit are not.
    #[must_use]
    pub fn into_owned(self) -> Permit<'static> {
        Permit(Paid::Own(self.own()))
    }

    fn own(self) -> Box<Own> {
        let (limiter, shares, at) = match self.0 {
            Paid::Own(own) => return own,
            Paid::One { limiter, ask, now, left } => {
                (limiter, Shares::of_one(&ask, left, now), now)
            }
            Paid::Several(several) => {
                let Several { limiter, limit, asks, applied } = *several;
                // Nobody is given leave who has asked for nothing.
                let shares = Shares::of(&asks, &applied)
                    .unwrap_or_else(|| Shares::none(limit, applied.now()));
                (limiter, shares, applied.now())
            }
        };
        Box::new(Own { limiter: limiter.clone(), shares, at })
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

impl Left {
    /// What the buckets of an admitted request have said.
    fn of(limit: &Limit, readings: &[Reading]) -> Self {
        let mut taken = [0; 2];
        for (taken, reading) in taken.iter_mut().zip(readings) {
            *taken = reading.units();
        }
        Self { state: Stand::of(limit, readings).state, taken }
    }
}

impl<'a> Several<'a> {
    fn standings(&self) -> impl Iterator<Item = Standing<'a>> {
        let Self { asks, applied, .. } = self;
        said(asks, applied).map(|(ask, readings)| Standing::of(ask.limit, readings, applied.now()))
    }
}

impl Permit<'_> {
    fn settled(&self, actual: Option<u64>) -> Settling {
        match &self.0 {
            Paid::Own(own) => {
                let parts = own.shares.iter().map(Share::part);
                Settling::new(&own.limiter, own.shares.standing().limit(), parts, actual)
            }
            Paid::One { limiter, ask, left, .. } => {
                let part = Part::taking(ask, left.taken);
                Settling::new(limiter, ask.limit, std::iter::once(part), actual)
            }
            Paid::Several(several) => {
                let Several { limiter, limit, asks, applied } = &**several;
                let parts = said(asks, applied).map(|(ask, said)| Part::of(ask, said));
                Settling::new(limiter, limit, parts, actual)
            }
        }
    }
}

impl Permit<'static> {
    pub(crate) fn owned(limiter: RateLimiter, shares: Shares, at: Timestamp) -> Self {
        Self(Paid::Own(Box::new(Own { limiter, shares, at })))
    }
}

/// The future of [`Permit::settle`]: how the limit stands then; of several, the first that is
/// concerned.
#[derive(Debug)]
#[must_use = "whether it worked is known only when it is awaited"]
pub struct Settling {
    answer: Unstoppable<Applied>,
    limit: Limit,
    /// What stays taken of its buckets that are concerned.
    kept: SmallVec<[Units; 2]>,
}

impl Settling {
    /// `None` gives everything back.
    pub(super) fn new<'p>(
        limiter: &RateLimiter,
        first: &Limit,
        parts: impl Iterator<Item = Part<'p>> + Clone,
        actual: Option<u64>,
    ) -> Self {
        // Where a cost was said, what only counts requests is left alone.
        let any = actual.is_some() && parts.clone().any(|part| part.priced);
        let (mut limit, mut kept) = (None, SmallVec::new());
        let mut refunds = SmallVec::<[Adjustment<'_>; 4]>::new();
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
        let answer = Unstoppable::new(limiter.backend().adjust(&refunds));
        Self { answer, limit: limit.unwrap_or(first).clone(), kept }
    }
}

impl Future for Settling {
    type Output = Result<Standing<'static>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let standing = answer.and_then(|refunded| {
            let readings = refunded.readings().get(..self.kept.len()).unwrap_or_default();
            let reading = |(after, kept): (&Reading, &Units)| {
                Reading::new(Verdict::Admitted, after.state(), Duration::ZERO).taking(*kept)
            };
            let readings: SmallVec<[Reading; 2]> =
                readings.iter().zip(&self.kept).map(reading).collect();
            if readings.is_empty() {
                return Err(BackendError::incomplete());
            }
            Ok(Standing::of(&self.limit, &readings, refunded.now()).into_owned())
        });
        Poll::Ready(standing.map_err(|error| Error::backend(&self.limit, error)))
    }
}
