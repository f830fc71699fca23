//! Calls of a handle that is switched off or has observers.

use std::task::{Context, Poll};

use smallvec::SmallVec;

use super::Limit;
use super::calls::LimitCall;
use super::events::Report;
#[cfg(feature = "memory")]
use super::lone_bucket::decide;
use super::permit::Permit;
use super::progress::Progress;
use super::rate_limited::RateLimited;

impl<'l> LimitCall<'l> {
    /// Decides without the store, or tells the observers what the store decides.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_specially(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Permit<'l>, RateLimited>> {
        let Self { limiter, demands, progress, .. } = self;
        let Some(observers) = limiter.observers() else {
            if let Progress::Done = progress {
                return Poll::Pending;
            }
            *progress = Progress::Done;
            return Poll::Ready(limiter.permit_uncharged(demands));
        };
        // Before the poll, which takes the demands out.
        let asked: SmallVec<[(&Limit, u64); 4]> = demands.limits().collect();
        let polled = self.poll_observed(cx);
        if let Poll::Ready(answer) = &polled {
            Report::of_call(asked.into_iter(), answer.as_ref()).tell(observers);
        }
        polled
    }

    fn poll_observed(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit<'l>, RateLimited>> {
        #[cfg(feature = "memory")]
        if let Some(memory) = self.limiter.memory() {
            let Self { limiter, demands, jitter: 0, progress } = self else {
                return self.poll_list(cx);
            };
            if let (Progress::New, Some(demand)) = (&*progress, demands.lone_bucket()) {
                *progress = Progress::Done;
                return decide(limiter, memory, demand);
            }
        }
        self.poll_list(cx)
    }
}
