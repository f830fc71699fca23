//! What is asked of a limiter, and the future of the answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use super::ask::{Ask, Asks, Wish, ask};
use super::decision::Refusal;
use super::queue::Booking;
use super::share::{Shares, complete, refused};
use super::unstoppable::Unstoppable;
use super::{Decision, Error, Limit, Permit, RateLimiter, Reservation, Standing};
use crate::algebra::Verdict;
use crate::backend::{Answer, Applied, BackendError, BucketId, Charge, Key};

/// What is asked, and of whom.
#[derive(Clone, Debug)]
pub(super) struct Question<'a, 'l> {
    limiter: &'a RateLimiter,
    /// The first, which errors name.
    limit: &'l Limit,
    asks: Asks<'l>,
    pub(super) wish: Wish,
    pub(super) jitter: Duration,
}

/// Room for as many limits as most transactions name.
const USUAL: usize = 4;

impl<'a: 'l, 'l> Question<'a, 'l> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'l Limit, wish: Wish) -> Self {
        Self { limiter, limit, asks: Asks::One([Ask::of(limit)]), wish, jitter: Duration::ZERO }
    }

    /// Asks one more limit.
    pub(super) fn and(mut self, limit: &'l Limit) -> Self {
        let more = Ask::of(limit);
        self.asks = match self.asks {
            Asks::One([one]) => {
                let mut many = Vec::with_capacity(USUAL);
                many.extend([one, more]);
                Asks::Many(many)
            }
            Asks::Many(mut many) => {
                many.push(more);
                Asks::Many(many)
            }
        };
        self
    }

    /// What is asked of the limit that was named last.
    #[inline]
    pub(super) fn last(&mut self) -> Option<&mut Ask<&'l Limit>> {
        self.asks.as_mut_slice().last_mut()
    }

    #[inline(always)]
    fn answered(&mut self, answer: Result<Applied, BackendError>) -> Result<Decision<'l>, Error> {
        let applied = match answer.and_then(|applied| complete(self.asks.as_slice(), applied)) {
            Ok(applied) => applied,
            Err(error) => return Err(Error::backend(self.limit, error)),
        };
        match applied.verdict() {
            Verdict::Admitted => {
                let asks = std::mem::replace(&mut self.asks, Asks::Many(Vec::new()));
                let permit = Permit::here(self.limiter, self.limit, asks, applied);
                Ok(Decision::Admitted(permit))
            }
            Verdict::Refused => {
                let refused = refused(self.asks.as_slice(), &applied);
                let refusal = Refusal::new(refused, applied.wait(), self.jitter);
                Ok(Decision::Refused(refusal))
            }
            Verdict::Reserved => {
                let booking = Booking::of(self.limiter, self.asks.as_slice(), &applied);
                self.reserved(&applied, booking)
            }
        }
    }

    fn reserved(&self, applied: &Applied, booking: Option<Booking>) -> Result<Decision<'l>, Error> {
        let shares = Shares::of(self.asks.as_slice(), applied);
        let (Wish::Reserve(max_wait), Some(booking), Some(shares)) = (self.wish, booking, shares)
        else {
            // Not asked for: not for now in any case.
            return Err(Error::backend(self.limit, BackendError::incomplete()));
        };
        // Chance never decides whether there is a reservation.
        let jitter = self.jitter.min(max_wait.saturating_sub(applied.wait()));
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
        let name = self.limit.name();
        (0..self.limit.quota().shard_count())
            .map(move |shard| BucketId::new(name, key).shard(shard))
    }
}

static EVERYBODY: Key = Key::GLOBAL;

/// What a call asks and how it hears the answer, one after the other.
pub(super) trait Asking<'a, 'l>: Sized {
    /// Asks; the answer is written where the caller wants it, or comes later.
    fn ask(
        question: &mut Question<'a, 'l>,
        later: &mut Option<Later<'l, Self>>,
        cx: &mut Context<'_>,
    ) -> Told<Self>;
}

pub(super) type Told<T> = Poll<Result<T, Error>>;

pub(super) type Later<'l, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'l>>;

impl<'a: 'l, 'l> Asking<'a, 'l> for Decision<'l> {
    fn ask(
        question: &mut Question<'a, 'l>,
        later: &mut Option<Later<'l, Self>>,
        cx: &mut Context<'_>,
    ) -> Told<Self> {
        let wish = question.wish;
        question.jitter = question.limiter.random().up_to(question.jitter);
        match ask(question.limiter, question.asks.as_mut_slice(), wish, wish) {
            Ok(Answer::Now(answer)) => Poll::Ready(question.answered(answer)),
            Ok(answer) => {
                let answer = question.clone().later(answer);
                later.insert(answer).as_mut().poll(cx)
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<'a: 'l, 'l> Asking<'a, 'l> for Standing<'l> {
    fn ask(
        question: &mut Question<'a, 'l>,
        later: &mut Option<Later<'l, Self>>,
        cx: &mut Context<'_>,
    ) -> Told<Self> {
        let limit = question.limit;
        let look = |id| Charge::look(id, limit.bucket(), 0);
        let looks: SmallVec<[Charge<'_>; 1]> = question.shards().map(look).collect();
        let count = looks.len();
        let answer = question.limiter.backend().apply(&looks);
        hear(answer, later, cx, move |answer| {
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
        later: &mut Option<Later<'l, Self>>,
        cx: &mut Context<'_>,
    ) -> Told<Self> {
        let limit = question.limit;
        let ids: SmallVec<[BucketId<'_>; 1]> = question.shards().collect();
        let answer = question.limiter.backend().reset(&ids);
        hear(answer, later, cx, move |answer| answer.map_err(|error| Error::backend(limit, error)))
    }
}

/// Reads an answer now, or when it is there.
fn hear<'l, A: 'l, T>(
    answer: Answer<A>,
    later: &mut Option<Later<'l, T>>,
    cx: &mut Context<'_>,
    read: impl FnOnce(Result<A, BackendError>) -> Result<T, Error> + Send + 'l,
) -> Told<T> {
    match answer {
        Answer::Now(answer) => Poll::Ready(read(answer)),
        Answer::Later(future) => {
            let answer: Later<'l, T> = Box::pin(async move { read(future.await) });
            later.insert(answer).as_mut().poll(cx)
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
    asked: bool,
    later: Option<Later<'l, T>>,
}

impl<'a, 'l, T> Call<'a, 'l, T> {
    #[inline]
    pub(super) const fn new(question: Question<'a, 'l>) -> Self {
        Self { question, asked: false, later: None }
    }
}

impl<'a, 'l, T: Asking<'a, 'l>> Future for Call<'a, 'l, T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { question, asked, later } = &mut *self;
        if !*asked {
            *asked = true;
            return T::ask(question, later, cx);
        }
        match later {
            Some(future) => future.as_mut().poll(cx),
            // A future that has given its answer is not polled again.
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Call<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("asked", &self.asked).finish_non_exhaustive()
    }
}
