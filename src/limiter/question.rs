//! What is asked of a limiter, and the future of the answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::decision::Refusal;
use super::queue::{Booking, Whose};
use super::unstoppable::Unstoppable;
use super::{Decision, Error, Limit, Permit, RateLimiter, Reservation, Standing};
use crate::algebra::{Terms, Units, Verdict};
use crate::backend::{Answer, Applied, BackendError, BucketId, Charge, Key};

/// What is asked, and of which bucket.
#[derive(Clone, Debug)]
pub(super) struct Question<'a, 'l> {
    limiter: &'a RateLimiter,
    limit: &'l Limit,
    pub(super) key: Key,
    pub(super) cost: u64,
    pub(super) wish: Wish,
    pub(super) jitter: Duration,
}

/// What is wanted of the tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Look,
    Take,
    /// Wait for them, for no longer than this.
    Reserve(Duration),
}

impl Wish {
    const fn max_wait(self) -> Duration {
        match self {
            Self::Look | Self::Take => Duration::ZERO,
            Self::Reserve(max_wait) => max_wait,
        }
    }
}

// Decisions borrow the limiter, and not the limit: that may be a constant, which lives for one
// statement.
impl<'a: 'l, 'l> Question<'a, 'l> {
    pub(super) const fn new(
        limiter: &'a RateLimiter,
        limit: &'l Limit,
        cost: u64,
        wish: Wish,
    ) -> Self {
        Self { limiter, limit, key: Key::GLOBAL, cost, wish, jitter: Duration::ZERO }
    }

    fn id(&self) -> BucketId<'_> {
        BucketId::new(self.limit.name(), &self.key)
    }

    pub(super) fn decide(mut self) -> Given<'l, Decision<'a>> {
        self.jitter = self.limiter.random().up_to(self.jitter);
        let bucket = self.limit.bucket();
        let terms = match self.wish {
            Wish::Look | Wish::Take => Terms::AT_ONCE,
            Wish::Reserve(max_wait) => Terms::reserving(bucket.floor()).within(max_wait),
        };
        let units = match charged_units(self.limit, self.cost, terms) {
            Ok(units) => units,
            Err(error) => return Given::Now(Err(error)),
        };
        let make = if matches!(self.wish, Wish::Look) { Charge::look } else { Charge::take };
        let charge = make(self.id(), bucket, units).on(terms);
        match self.limiter.backend().apply(&[charge]) {
            Answer::Now(answer) => Given::Now(self.decided(units, answer)),
            // Heard also if nobody waits any more, as a reservation has to be given up then.
            answer @ Answer::Later(_) if matches!(self.wish, Wish::Reserve(_)) => {
                let (limiter, limit) = (self.limiter.clone(), self.limit.clone());
                let whose = Whose { limit, key: self.key.clone() };
                let heard = answer.map(move |applied| {
                    let booked = applied.verdict() == Verdict::Reserved;
                    let booking =
                        booked.then(|| Booking::new(&limiter, whose, units, &applied)).flatten();
                    (applied, booking)
                });
                let heard = Unstoppable::new(heard);
                Given::later(async move {
                    let answer = heard.await;
                    self.told(units, answer)
                })
            }
            Answer::Later(answer) => Given::later(async move {
                let answer = answer.await;
                self.decided(units, answer)
            }),
        }
    }

    fn decided(
        self,
        units: Units,
        answer: Result<Applied, BackendError>,
    ) -> Result<Decision<'a>, Error> {
        let answer = answer.map(|applied| {
            let booking = match applied.verdict() {
                Verdict::Reserved => {
                    let whose = Whose { limit: self.limit.clone(), key: self.key.clone() };
                    Booking::new(self.limiter, whose, units, &applied)
                }
                Verdict::Admitted | Verdict::Refused => None,
            };
            (applied, booking)
        });
        self.told(units, answer)
    }

    fn told(
        self,
        units: Units,
        answer: Result<(Applied, Option<Booking>), BackendError>,
    ) -> Result<Decision<'a>, Error> {
        let Self { limiter, limit, key, wish, jitter, .. } = self;
        let decision = answer.and_then(|(applied, booking)| {
            let verdict = applied.verdict();
            let standing = Standing::first(limit, &applied).ok_or_else(BackendError::incomplete)?;
            Ok(match (verdict, booking) {
                (Verdict::Reserved, Some(booking)) => {
                    // Chance never decides whether there is a reservation.
                    let spare = wish.max_wait().saturating_sub(standing.wait());
                    let jitter = jitter.min(spare);
                    Decision::Reserved(Reservation::new(booking, units, standing, jitter))
                }
                // Not asked for, or not said where: not for now in any case.
                (Verdict::Reserved, None) => return Err(BackendError::incomplete()),
                (Verdict::Admitted, _) => {
                    let taken = if matches!(wish, Wish::Look) { 0 } else { units };
                    Decision::Admitted(Permit::borrowed(limiter, key, taken, standing))
                }
                (Verdict::Refused, _) => {
                    Decision::Refused(Refusal::of(standing).with_jitter(jitter))
                }
            })
        });
        decision.map_err(|error| Error::backend(limit, error))
    }

    pub(super) fn value(self) -> Given<'l, Standing> {
        let look = Charge::look(self.id(), self.limit.bucket(), 0);
        let limit = self.limit;
        Given::of(self.limiter.backend().apply(&[look]), move |answer| {
            let standing = answer.and_then(|applied| {
                Standing::first(limit, &applied).ok_or_else(BackendError::incomplete)
            });
            standing.map_err(|error| Error::backend(limit, error))
        })
    }

    pub(super) fn reset(self) -> Given<'l, ()> {
        let limit = self.limit;
        Given::of(self.limiter.backend().reset(self.id()), move |answer| {
            answer.map_err(|error| Error::backend(limit, error))
        })
    }
}

/// What a cost comes to, if the limit can ever grant it on these terms.
pub(crate) fn charged_units(limit: &Limit, cost: u64, terms: Terms) -> Result<Units, Error> {
    let bucket = limit.bucket();
    match bucket.units(cost) {
        Some(units) if !bucket.too_large(cost, terms) => Ok(units),
        _ => Err(Error::too_large(limit, cost, terms)),
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
