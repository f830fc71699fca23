//! The call that reserves tokens.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Limit;
use super::decide::{Asked, Asking};
use super::demand::{Demand, Demands, Mode};
use super::detached::DetachOnDrop;
use super::engine::RateLimiter;
use super::events::DecisionSource;
use super::progress::Progress;
use super::random::nanos;
use super::rate_limited::RateLimited;
use super::reservation::{Request, Reservation};
use crate::backend::Answer;

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
    pub(super) answer: Progress<Result<Reservation, RateLimited>>,
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
        let limit = demands.limit();
        let mode = Mode::Reserve(*max_wait);
        let asking = Asking {
            mode,
            longest: mode,
            ..Asking::take(DecisionSource::Handler, limiter.get_on_failure())
        };
        let request = |demands: &[Demand<&Limit>]| {
            let own = |one: &Demand<&Limit>| one.with_limit(Arc::new(one.limit.clone()));
            let jitter = limiter.random().up_to(Duration::from_nanos(*jitter));
            let demands = demands.iter().map(own).collect();
            Request { limiter: limiter.clone(), demands, asking, jitter }
        };
        let ask = || {
            let asked = limiter.ask(demands.as_mut_slice(), asking);
            let request = request(demands.as_slice());
            match asked {
                Asked::Decided(decided) => Answer::Ready(Ok(request.reserve(limit, decided))),
                // The answer is awaited even if the call is dropped, since what it reserved has to
                // be given up then.
                Asked::Pending(pending) => {
                    let limit = limit.clone();
                    let reserved = Answer::pending(async move {
                        let Request { limiter, demands, .. } = &request;
                        // A failure is left to the call, which may be gone.
                        let decided = limiter.decided(demands, asking, Ok(pending.await?));
                        Ok(request.reserve(&limit, decided))
                    });
                    Answer::Pending(Box::pin(DetachOnDrop::new(reserved)))
                }
            }
        };
        let reserved = ready!(answer.poll(cx, ask));
        Poll::Ready(reserved.unwrap_or_else(|error| {
            let decided = limiter.decided(demands.as_slice(), asking, Err(error));
            request(demands.as_slice()).reserve(limit, decided)
        }))
    }
}

impl fmt::Debug for ReserveCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("ReserveCall", &self.demands, &self.answer, f)
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
