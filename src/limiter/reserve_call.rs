//! The call that reserves tokens.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Limit;
use super::complete_answer::is_complete;
use super::demand::{Demand, Demands, Mode};
use super::detached::DetachOnDrop;
use super::engine::RateLimiter;
use super::events::{DecisionSource, Outcome, Report};
use super::grant::Grant;
#[cfg(feature = "memory")]
use super::line::LineSlot;
use super::progress::Progress;
use super::queue::HeldSlot;
use super::random::nanos;
use super::rate_limited::RateLimited;
use super::reservation::Reservation;
use super::reserved_slot::ReservedSlot;
use super::with_defaults::FreeDemands;
use crate::backend::{Answer, BackendError};
use crate::clock::Timestamp;

/// A request for tokens that may come later, made by
/// [`LimitCall::reserve`](super::LimitCall::reserve); await it.
///
/// Its output is `Result<Reservation, RateLimited>`.
///
/// # Cancel safety
///
/// Dropping the call gives up what it may have reserved. With a store that answers later, this
/// needs a tokio runtime: the one in which the call is dropped. Outside of a runtime, the tokens
/// may stay taken.
#[must_use = "nothing is asked until it is awaited"]
pub struct ReserveCall<'l> {
    pub(super) limiter: &'l RateLimiter,
    pub(super) demands: Demands<'l>,
    pub(super) max_wait: Duration,
    /// In nanoseconds.
    pub(super) jitter: u64,
    pub(super) answer: Progress<Result<Result<Reservation, RateLimited>, BackendError>>,
}

impl ReserveCall<'_> {
    /// Adds up to `spread`, at random, to the wait of the reservation or of the refusal.
    ///
    /// Work that would all run at the same instant, such as the start of a window, then runs one
    /// after another. The wait is never shorter than without it.
    /// [`reserve_within`](super::LimitCall::reserve_within) cuts the jitter where the wait would
    /// exceed its bound.
    ///
    /// Jitter widens the bound of the quota: delayed work may run together with work of a later
    /// instant. So the bound for a window of time is that of a window longer by `spread`. Reserved
    /// work runs in the order of its instants with jitter.
    #[inline]
    pub fn jitter(mut self, spread: Duration) -> Self {
        self.answer.restart();
        self.jitter = nanos(spread);
        self
    }
}

impl Future for ReserveCall<'_> {
    type Output = Result<Reservation, RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { limiter, demands, max_wait, jitter, answer } = &mut *self;
        if let Progress::New = answer {
            demands.update_numbers(limiter.replacements());
        }
        let submit = || {
            let mode = Mode::Reserve(*max_wait);
            let own = |demands: &[Demand<&Limit>]| {
                demands.iter().map(|one| one.with_limit(Arc::new(one.limit.clone()))).collect()
            };
            if limiter.is_off() {
                return Ok(Answer::Ready(Ok(uncharged(limiter, demands))));
            }
            let (limiter, max_wait) = (RateLimiter::clone(limiter), *max_wait);
            #[cfg(feature = "memory")]
            if let Some(memory) = limiter.memory().cloned() {
                let modes = [mode, mode];
                let (applied, ticket) =
                    limiter.reserve(&memory, demands.as_mut_slice(), modes, None)?;
                let jitter = limiter.random().up_to(Duration::from_nanos(*jitter));
                let owned: Vec<_> = own(demands.as_slice());
                let hold = |_: &_, grants: &[&Grant], now, wait| {
                    let grants = grants.iter().copied();
                    Some(ReservedSlot::Line(LineSlot::new(&memory, ticket?, grants, now, wait)))
                };
                let reserved =
                    Reservation::from_answer(limiter, owned, applied, max_wait, jitter, hold);
                return Ok(Answer::Ready(Ok(reserved)));
            }
            let submitted = limiter.timed(limiter.submit(demands.as_mut_slice(), mode, mode)?);
            let owned: Vec<_> = own(demands.as_slice());
            let jitter = limiter.random().up_to(Duration::from_nanos(*jitter));
            let reserve = move |applied| {
                if let Some(first) = owned.first().filter(|_| is_complete(&owned, &applied)) {
                    limiter.store_answered(first.limit(), &applied);
                }
                let hold = |limiter: &RateLimiter, grants: &[&Grant], now: Timestamp, wait| {
                    let grants = grants.iter().copied();
                    let slot = HeldSlot::new(limiter.queues(), grants, now + wait, now);
                    Some(ReservedSlot::Slot(Box::new(slot)))
                };
                Reservation::from_answer(limiter, owned, applied, max_wait, jitter, hold)
            };
            Ok(match submitted.map(reserve) {
                ready @ Answer::Ready(_) => ready,
                // The answer is awaited even if the call is dropped, since what it reserved has to
                // be given up then.
                pending => Answer::Pending(Box::pin(DetachOnDrop::new(pending))),
            })
        };
        // What the store has decided was told when its answer was read.
        let reserved = match ready!(answer.poll(cx, submit)).map(Result::flatten) {
            Ok(Ok(reserved)) => reserved,
            Ok(Err(error)) if limiter.admits_in_spite_of(demands, &error) => {
                tell(limiter, Report::alike(HANDLER, demands.limits(), Outcome::Uncounted));
                uncharged(limiter, demands)
                    .unwrap_or_else(|error| Err(limiter.failed(demands.limit(), error)))
            }
            Ok(Err(error)) => {
                tell(limiter, Report::alike(HANDLER, demands.limits(), Outcome::Unavailable));
                Err(limiter.failed(demands.limit(), error))
            }
            Err(too_large) => {
                tell(limiter, Report::failed(HANDLER, demands.limits(), &too_large));
                Err(limiter.denied(too_large))
            }
        };
        Poll::Ready(reserved.map_err(|error| error.with_speech(limiter.speech())))
    }
}

impl fmt::Debug for ReserveCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("ReserveCall", &self.demands, &self.answer, f)
    }
}

const HANDLER: DecisionSource = DecisionSource::Handler;

#[cold]
fn tell(limiter: &RateLimiter, report: Report<'_>) {
    if let Some(observers) = limiter.observers() {
        report.tell(observers);
    }
}

/// A reservation for now that has taken nothing.
#[cold]
fn uncharged(
    limiter: &RateLimiter,
    demands: &Demands<'_>,
) -> Result<Result<Reservation, RateLimited>, BackendError> {
    match limiter.decide_uncharged(demands) {
        Ok(FreeDemands { limiter, demands, applied }) => {
            let (wait, jitter) = (Duration::ZERO, Duration::ZERO);
            Reservation::from_answer(limiter, demands, applied, wait, jitter, |_, _, _, _| None)
        }
        Err(error) => Ok(Err(error)),
    }
}

/// Formats a call for `Debug`.
pub(super) fn debug<T>(
    name: &str,
    demands: &Demands<'_>,
    progress: &Progress<T>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let names: Vec<_> = demands.as_slice().iter().map(|demand| demand.limit.name()).collect();
    f.debug_struct(name).field("limits", &names).field("progress", &progress.name()).finish()
}
