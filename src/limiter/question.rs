//! What is asked of a limiter, and the future of the answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use super::ask::{Ask, Asks, Wish, ask};
use super::decision::Refusal;
#[cfg(feature = "memory")]
use super::permit::Left;
use super::queue::Booking;
use super::share::{Shares, complete, refused};
use super::unstoppable::Unstoppable;
use super::{Decision, Error, Limit, Permit, RateLimiter, Reservation, Standing};
use crate::algebra::Verdict;
#[cfg(feature = "memory")]
use crate::backend::Memory;
use crate::backend::{Answer, Applied, BackendError, BucketId, Charge, Key};

/// What is asked, and of whom.
#[derive(Clone, Debug)]
pub(super) struct Question<'a, 'l> {
    limiter: &'a RateLimiter,
    asks: Asks<'l>,
    pub(super) wish: Wish,
    /// In nanoseconds: a `Duration` takes twice the room.
    jitter: u64,
}

/// Room for as many limits as most transactions name.
const USUAL: usize = 4;

impl<'a: 'l, 'l> Question<'a, 'l> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'l Limit, wish: Wish) -> Self {
        Self { limiter, asks: Asks::One([Ask::of(limit)]), wish, jitter: 0 }
    }

    /// Waits for longer, by this much at most; for five centuries if it is more.
    pub(super) const fn spread(&mut self, spread: Duration) {
        let nanos = spread.as_secs().saturating_mul(1_000_000_000);
        // `u64::from` is not const.
        let [a, b, c, d] = spread.subsec_nanos().to_le_bytes();
        self.jitter = nanos.saturating_add(u64::from_le_bytes([a, b, c, d, 0, 0, 0, 0]));
    }

    const fn jitter(&self) -> Duration {
        Duration::from_nanos(self.jitter)
    }

    /// Asks one more limit.
    pub(super) fn and(mut self, limit: &'l Limit) -> Self {
        let more = Ask::of(limit);
        let first = self.asks.limit();
        let mut asks = match self.asks {
            Asks::One([one]) => {
                let mut asks = Vec::with_capacity(USUAL);
                asks.push(one);
                asks
            }
            Asks::Many { asks, .. } => asks,
        };
        asks.push(more);
        self.asks = Asks::Many { limit: first, asks };
        self
    }

    /// What is asked of the limit that was named last.
    #[inline]
    pub(super) fn last(&mut self) -> Option<&mut Ask<&'l Limit>> {
        self.asks.as_mut_slice().last_mut()
    }

    #[inline(never)]
    fn answered(&mut self, answer: Result<Applied, BackendError>) -> Result<Decision<'l>, Error> {
        let applied = match answer.and_then(|applied| complete(self.asks.as_slice(), applied)) {
            Ok(applied) => applied,
            Err(error) => return Err(Error::backend(self.asks.limit(), error)),
        };
        match applied.verdict() {
            Verdict::Admitted => {
                let none = Asks::Many { limit: self.asks.limit(), asks: Vec::new() };
                let asks = std::mem::replace(&mut self.asks, none);
                let permit = Permit::here(self.limiter, asks, applied);
                Ok(Decision::Admitted(permit))
            }
            Verdict::Refused => {
                let refused = refused(self.asks.as_slice(), &applied);
                let refusal = Refusal::new(refused, applied.wait(), self.jitter());
                Ok(Decision::Refused(refusal))
            }
            Verdict::Reserved => {
                let booking = Booking::of(self.limiter, self.asks.as_slice(), &applied);
                self.reserved(&applied, booking)
            }
        }
    }

    /// Asks any store.
    #[inline(never)]
    fn ask(
        &mut self,
        stage: &mut Stage<'l, Decision<'l>>,
        cx: &mut Context<'_>,
    ) -> Told<Decision<'l>> {
        self.spread(self.limiter.random().up_to(self.jitter()));
        match ask(self.limiter, self.asks.as_mut_slice(), self.wish, self.wish) {
            Ok(Answer::Ready(answer)) => Poll::Ready(self.answered(answer)),
            Ok(answer) => {
                let answer = self.clone().later(answer);
                stage.later(answer, cx)
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Whether one bucket answers it, without chance.
    #[cfg(feature = "memory")]
    #[inline]
    fn is_of_one_bucket(&self) -> bool {
        let Asks::One([ask]) = &self.asks else { return false };
        !ask.limit.is_in_shards() && self.jitter == 0
    }

    /// What becomes of nearly every question there is, in one piece: all of this could be left to
    /// [`ask`] and [`answered`](Self::answered).
    #[cfg(feature = "memory")]
    #[inline(always)]
    fn decided_by(&mut self, memory: &Memory) -> Told<Decision<'l>> {
        let (limiter, limit, wish) = (self.limiter, self.asks.limit(), self.wish);
        let Some(ask) = self.last() else {
            return Poll::Ready(Err(Error::backend(limit, BackendError::incomplete())));
        };
        let charge = match ask.charge(wish, wish) {
            Ok(charge) => charge,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let (now, reading) = memory.charge(&charge);
        match reading.verdict() {
            Verdict::Admitted => {
                let ask = std::mem::replace(ask, Ask::of(limit));
                let left = Left { state: reading.state(), taken: [reading.units(), 0] };
                Poll::Ready(Ok(Decision::Admitted(Permit::of_one(limiter, ask, now, left))))
            }
            Verdict::Refused => {
                let refused = Standing::of(limit, &[reading], now);
                Poll::Ready(Ok(Decision::Refused(Refusal::of_one(refused))))
            }
            Verdict::Reserved => Poll::Ready(self.answered(Ok(Applied::one(now, reading)))),
        }
    }

    fn reserved(&self, applied: &Applied, booking: Option<Booking>) -> Result<Decision<'l>, Error> {
        let shares = Shares::of(self.asks.as_slice(), applied);
        let (Wish::Reserve(max_wait), Some(booking), Some(shares)) = (self.wish, booking, shares)
        else {
            // Not asked for: not for now in any case.
            return Err(Error::backend(self.asks.limit(), BackendError::incomplete()));
        };
        // Chance never decides whether there is a reservation.
        let jitter = self.jitter().min(max_wait.saturating_sub(applied.wait()));
        Ok(Decision::Reserved(Reservation::new(booking, shares, applied.now(), jitter)))
    }

    /// Hears an answer that comes later.
    fn later(mut self, answer: Answer<Applied>) -> Later<'l, Decision<'l>> {
        if !matches!(self.wish, Wish::Reserve(_)) {
            return Box::pin(async move { self.answered(answer.wait().await) });
        }
        // Heard also if nobody waits any more, as a reservation has to be given up then.
        let limiter = self.limiter.clone();
        let asks: Vec<_> = self.asks.as_slice().iter().map(Ask::to_owned).collect();
        let heard = Unstoppable::new(answer.map(move |applied| {
            let applied = complete(&asks, applied)?;
            let booking = Booking::of(&limiter, &asks, &applied);
            Ok((applied, booking))
        }));
        Box::pin(async move {
            match heard.await.flatten() {
                Ok((applied, booking @ Some(_))) => self.reserved(&applied, booking),
                answer => self.answered(answer.map(|(applied, _)| applied)),
            }
        })
    }

    fn shards(&self) -> impl Iterator<Item = BucketId<'_>> {
        let key = self.asks.as_slice().first().map_or(&EVERYBODY, |ask| &ask.key);
        let limit = self.asks.limit();
        let name = limit.name();
        (0..limit.quota().shard_count()).map(move |shard| BucketId::new(name, key).shard(shard))
    }
}

static EVERYBODY: Key = Key::GLOBAL;

/// What a call asks and how it hears the answer, one after the other.
pub(super) trait Asking<'a, 'l>: Sized {
    /// Asks; the answer is written where the caller wants it, or comes later.
    fn ask(
        question: &mut Question<'a, 'l>,
        stage: &mut Stage<'l, Self>,
        cx: &mut Context<'_>,
    ) -> Told<Self>;
}

pub(super) type Told<T> = Poll<Result<T, Error>>;

pub(super) type Later<'l, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'l>>;

impl<'a: 'l, 'l> Asking<'a, 'l> for Decision<'l> {
    #[inline]
    fn ask(
        question: &mut Question<'a, 'l>,
        stage: &mut Stage<'l, Self>,
        cx: &mut Context<'_>,
    ) -> Told<Self> {
        #[cfg(feature = "memory")]
        if let Some(memory) = question.limiter.memory()
            && question.is_of_one_bucket()
        {
            return question.decided_by(memory);
        }
        question.ask(stage, cx)
    }
}

impl<'a: 'l, 'l> Asking<'a, 'l> for Standing<'l> {
    fn ask(
        question: &mut Question<'a, 'l>,
        stage: &mut Stage<'l, Self>,
        cx: &mut Context<'_>,
    ) -> Told<Self> {
        let limit = question.asks.limit();
        let look = |id| Charge::look(id, limit.bucket(), 0);
        let looks: SmallVec<[Charge<'_>; 1]> = question.shards().map(look).collect();
        let count = looks.len();
        let answer = question.limiter.backend().apply(&looks);
        hear(answer, stage, cx, move |answer| {
            let standing = answer.and_then(|applied| {
                if applied.readings().len() != count {
                    return Err(BackendError::incomplete());
                }
                Ok(Standing::of(limit, applied.readings(), applied.now()))
            });
            standing.map_err(|error| Error::backend(limit, error))
        })
    }
}

/// That a bucket was reset.
impl<'a: 'l, 'l> Asking<'a, 'l> for () {
    fn ask(
        question: &mut Question<'a, 'l>,
        stage: &mut Stage<'l, Self>,
        cx: &mut Context<'_>,
    ) -> Told<Self> {
        let limit = question.asks.limit();
        let ids: SmallVec<[BucketId<'_>; 1]> = question.shards().collect();
        let answer = question.limiter.backend().reset(&ids);
        hear(answer, stage, cx, move |answer| answer.map_err(|error| Error::backend(limit, error)))
    }
}

/// Reads an answer now, or when it is there.
fn hear<'l, A: 'l, T>(
    answer: Answer<A>,
    stage: &mut Stage<'l, T>,
    cx: &mut Context<'_>,
    read: impl FnOnce(Result<A, BackendError>) -> Result<T, Error> + Send + 'l,
) -> Told<T> {
    match answer {
        Answer::Ready(answer) => Poll::Ready(read(answer)),
        Answer::Pending(future) => {
            let answer: Later<'l, T> = Box::pin(async move { read(future.await) });
            stage.later(answer, cx)
        }
    }
}

/// The future of every call: asks when it is first polled.
///
/// # Cancel safety
///
/// Dropped before it is polled, it has asked nothing. Dropped later, whether the operation takes
/// effect is unknown, but for a reservation, which is given up; the memory store answers the first
/// poll, so there is no later with it.
#[must_use = "futures do nothing unless polled"]
pub struct Call<'a, 'l, T> {
    question: Question<'a, 'l>,
    stage: Stage<'l, T>,
}

/// How far a call is.
pub(super) enum Stage<'l, T> {
    /// Nothing is asked yet.
    New,
    /// The question is put, and answered unless something is said to the contrary.
    Asked,
    /// The answer comes later.
    Later(Later<'l, T>),
}

impl<'l, T> Stage<'l, T> {
    /// Hears an answer that comes later.
    fn later(&mut self, answer: Later<'l, T>, cx: &mut Context<'_>) -> Told<T> {
        *self = Self::Later(answer);
        self.poll(cx)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Told<T> {
        match self {
            Self::Later(answer) => answer.as_mut().poll(cx),
            // A future that has given its answer is not polled again.
            Self::New | Self::Asked => Poll::Pending,
        }
    }
}

impl<'a, 'l, T> Call<'a, 'l, T> {
    #[inline]
    pub(super) const fn new(question: Question<'a, 'l>) -> Self {
        Self { question, stage: Stage::New }
    }
}

impl<'a, 'l, T: Asking<'a, 'l>> Future for Call<'a, 'l, T> {
    type Output = Result<T, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { question, stage } = &mut *self;
        if let Stage::New = stage {
            *stage = Stage::Asked;
            return T::ask(question, stage, cx);
        }
        stage.poll(cx)
    }
}

impl<T> fmt::Debug for Call<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = !matches!(self.stage, Stage::New);
        f.debug_struct("Call").field("asked", &asked).finish_non_exhaustive()
    }
}
