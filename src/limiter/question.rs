//! What is asked of a limiter, and the future of the answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use super::ask::{Ask, Wish, ask};
use super::decision::Refusal;
use super::queue::Booking;
use super::share::{Shares, refused};
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

/// Most ask of one limit.
#[derive(Clone, Debug)]
enum Asks<'l> {
    One([Ask<&'l Limit>; 1]),
    Many(Vec<Ask<&'l Limit>>),
}

impl<'l> Asks<'l> {
    #[inline]
    fn as_slice(&self) -> &[Ask<&'l Limit>] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [Ask<&'l Limit>] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

// Decisions borrow the limiter, and not the limit: that may be a constant, which lives for one
// statement.
impl<'a: 'l, 'l> Question<'a, 'l> {
    #[inline]
    pub(super) const fn new(limiter: &'a RateLimiter, limit: &'l Limit, wish: Wish) -> Self {
        Self { limiter, limit, asks: Asks::One([Ask::of(limit)]), wish, jitter: Duration::ZERO }
    }

    /// Asks one more limit.
    pub(super) fn and(mut self, limit: &'l Limit) -> Self {
        let more = Ask::of(limit);
        self.asks = match self.asks {
            Asks::One([one]) => Asks::Many(vec![one, more]),
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

    fn answered(&self, answer: Result<Applied, BackendError>) -> Poll<Result<Decision<'a>, Error>> {
        // The commonest by far are written where they will be.
        if let Ok(applied) = &answer
            && let ([ask], [reading]) = (self.asks.as_slice(), applied.readings())
            && !ask.limit.is_in_shards()
        {
            let now = applied.now();
            match reading.verdict() {
                Verdict::Admitted => {
                    let permit = Permit::of_one(self.limiter, ask, reading, now);
                    return Poll::Ready(Ok(Decision::Admitted(permit)));
                }
                Verdict::Refused => {
                    let refusal = Refusal::of_one(ask.limit, reading, now, self.jitter);
                    return Poll::Ready(Ok(Decision::Refused(refusal)));
                }
                Verdict::Reserved => {}
            }
        }
        Poll::Ready(self.told(answer.and_then(|applied| {
            let booking = Booking::of(self.limiter, self.asks.as_slice(), &applied)?;
            Ok((applied, booking))
        })))
    }

    /// Hears an answer that comes later.
    fn later(self, answer: Answer<Applied>) -> Later<'l, Decision<'a>> {
        if !matches!(self.wish, Wish::Reserve(_)) {
            return Box::pin(async move {
                let answer = answer.wait().await;
                self.told(answer.map(|applied| (applied, None)))
            });
        }
        // Heard also if nobody waits any more, as a reservation has to be given up then.
        let limiter = self.limiter.clone();
        let asks: Vec<_> = self.asks.as_slice().iter().map(Ask::to_owned).collect();
        let heard = Unstoppable::new(answer.map(move |applied| {
            let booking = Booking::of(&limiter, &asks, &applied);
            (applied, booking)
        }));
        Box::pin(async move {
            let answer = heard.await;
            self.told(answer.and_then(|(applied, booking)| Ok((applied, booking?))))
        })
    }

    fn told(
        &self,
        answer: Result<(Applied, Option<Booking>), BackendError>,
    ) -> Result<Decision<'a>, Error> {
        let &Self { limiter, wish, jitter, .. } = self;
        let asks = self.asks.as_slice();
        let decision = answer.and_then(|(applied, booking)| {
            Ok(match (applied.verdict(), booking) {
                (Verdict::Reserved, Some(booking)) => {
                    // Chance never decides whether there is a reservation.
                    let spare = wish.max_wait().saturating_sub(applied.wait());
                    let shares = Shares::of(asks, &applied)?;
                    let made = applied.now();
                    Decision::Reserved(Reservation::new(booking, shares, made, jitter.min(spare)))
                }
                // Not asked for, or not said where: not for now in any case.
                (Verdict::Reserved, None) => return Err(BackendError::incomplete()),
                (Verdict::Admitted, _) => {
                    let shares = Shares::of(asks, &applied)?;
                    Decision::Admitted(Permit::borrowed(limiter, shares, applied.now()))
                }
                (Verdict::Refused, _) => {
                    let refused = refused(asks, &applied)?;
                    Decision::Refused(Refusal::new(refused, applied.wait(), jitter))
                }
            })
        });
        decision.map_err(|error| Error::backend(self.limit, error))
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

impl<'a: 'l, 'l> Asking<'a, 'l> for Decision<'a> {
    fn ask(
        question: &mut Question<'a, 'l>,
        later: &mut Option<Later<'l, Self>>,
        cx: &mut Context<'_>,
    ) -> Told<Self> {
        let wish = question.wish;
        question.jitter = question.limiter.random().up_to(question.jitter);
        match ask(question.limiter, question.asks.as_mut_slice(), wish, wish) {
            Ok(Answer::Now(answer)) => question.answered(answer),
            Ok(answer) => {
                let answer = question.clone().later(answer);
                later.insert(answer).as_mut().poll(cx)
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<'a: 'l, 'l> Asking<'a, 'l> for Standing {
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
                let standing = Standing::of(limit, applied.readings(), applied.now());
                let is_whole = applied.readings().len() == count;
                standing.filter(|_| is_whole).ok_or_else(BackendError::incomplete)
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
