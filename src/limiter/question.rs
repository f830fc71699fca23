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
    fn as_slice(&self) -> &[Ask<&'l Limit>] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }

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

    /// Of whom is asked last.
    pub(super) fn key(mut self, key: Key) -> Self {
        if let Some(ask) = self.asks.as_mut_slice().last_mut() {
            ask.key = key;
        }
        self
    }

    /// What is asked of that one.
    pub(super) fn cost(mut self, tokens: u64) -> Self {
        if let Some(ask) = self.asks.as_mut_slice().last_mut() {
            ask.price(tokens);
        }
        self
    }

    pub(super) fn decide(mut self) -> Given<'l, Decision<'a>> {
        self.jitter = self.limiter.random().up_to(self.jitter);
        let answer = match ask(self.limiter, self.asks.as_mut_slice(), self.wish, self.wish) {
            Ok(answer) => answer,
            Err(error) => return Given::Now(Err(error)),
        };
        match answer {
            Answer::Now(answer) => Given::Now(self.told(answer.and_then(|applied| {
                let booking = Booking::of(self.limiter, self.asks.as_slice(), &applied)?;
                Ok((applied, booking))
            }))),
            // Heard also if nobody waits any more, as a reservation has to be given up then.
            answer @ Answer::Later(_) if matches!(self.wish, Wish::Reserve(_)) => {
                let limiter = self.limiter.clone();
                let asks: Vec<_> = self.asks.as_slice().iter().map(Ask::to_owned).collect();
                let heard = answer.map(move |applied| {
                    let booking = Booking::of(&limiter, &asks, &applied);
                    (applied, booking)
                });
                let heard = Unstoppable::new(heard);
                Given::later(async move {
                    let answer = heard.await;
                    self.told(answer.and_then(|(applied, booking)| Ok((applied, booking?))))
                })
            }
            Answer::Later(answer) => Given::later(async move {
                let answer = answer.await;
                self.told(answer.map(|applied| (applied, None)))
            }),
        }
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

    pub(super) fn value(self) -> Given<'l, Standing> {
        let (limit, shards) = (self.limit, self.limit.quota().shard_count());
        let key = self.asks.as_slice().first().map_or(Key::GLOBAL, |ask| ask.key.clone());
        let look = |shard| {
            let id = BucketId::new(limit.name(), &key).shard(shard);
            Charge::look(id, limit.bucket(), 0)
        };
        let looks: SmallVec<[Charge<'_>; 1]> = (0..shards).map(look).collect();
        Given::of(self.limiter.backend().apply(&looks), move |answer| {
            let standing = answer.and_then(|applied| {
                let all = usize::try_from(shards).is_ok_and(|all| applied.readings().len() == all);
                let standing = Standing::of(limit, applied.readings(), applied.now());
                standing.filter(|_| all).ok_or_else(BackendError::incomplete)
            });
            standing.map_err(|error| Error::backend(limit, error))
        })
    }

    pub(super) fn reset(self) -> Given<'l, ()> {
        let (limit, shards) = (self.limit, self.limit.quota().shard_count());
        let key = self.asks.as_slice().first().map_or(Key::GLOBAL, |ask| ask.key.clone());
        let id = |shard| BucketId::new(limit.name(), &key).shard(shard);
        let ids: SmallVec<[BucketId<'_>; 1]> = (0..shards).map(id).collect();
        Given::of(self.limiter.backend().reset(&ids), move |answer| {
            answer.map_err(|error| Error::backend(limit, error))
        })
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
    /// Taken by the first poll.
    question: Option<Question<'a, 'l>>,
    ask: fn(Question<'a, 'l>) -> Given<'l, T>,
    later: Option<Later<'l, T>>,
}

type Later<'l, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'l>>;

impl<'a, 'l, T> Call<'a, 'l, T> {
    pub(super) const fn new(
        question: Question<'a, 'l>,
        ask: fn(Question<'a, 'l>) -> Given<'l, T>,
    ) -> Self {
        Self { question: Some(question), ask, later: None }
    }
}

impl<T> Future for Call<'_, '_, T> {
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

impl<T> fmt::Debug for Call<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("asked", &self.question.is_none()).finish_non_exhaustive()
    }
}

/// A backend's answer, in the limiter's terms.
pub(super) enum Given<'l, T> {
    Now(Result<T, Error>),
    Later(Later<'l, T>),
}

impl<'l, T> Given<'l, T> {
    fn of<A>(
        answer: Answer<A>,
        read: impl FnOnce(Result<A, BackendError>) -> Result<T, Error> + Send + 'l,
    ) -> Self
    where
        A: 'l,
    {
        match answer {
            Answer::Now(answer) => Self::Now(read(answer)),
            Answer::Later(future) => Self::later(async move { read(future.await) }),
        }
    }

    fn later(future: impl Future<Output = Result<T, Error>> + Send + 'l) -> Self {
        Self::Later(Box::pin(future))
    }
}
