//! How requests wait for their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;

use super::rules::Rules;

/// How long requests may wait for their turn, and how many of them at once.
///
/// A [`Duration`] is a queue in which requests wait for at most that long.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::middleware::{Crowded, Queue};
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const LLM: Limit = Limit::new("llm", Quota::token_bucket(60, MINUTE).max_reserved(60));
///
/// let limiter = RateLimiter::in_memory();
/// let layer = limiter.layer(LLM).queue(Duration::from_secs(30));
/// let queue = Queue::up_to(Duration::from_secs(30)).max_waiters(50).crowded(Crowded::TooManyRequests);
/// let small = limiter.layer(LLM).queue(queue);
/// # drop((layer, small));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub(super) max_wait: Duration,
    max_waiters: usize,
    pub(super) crowded: Crowded,
}

/// What a request is answered that would have to wait where as many wait as may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Crowded {
    /// 503: the service has more to do than it can.
    #[default]
    ServiceUnavailable,
    /// 429: the client asks for more than its share.
    TooManyRequests,
}

impl Crowded {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

impl Queue {
    /// How many requests may wait at once in all services of a layer if nothing else is said.
    pub const MAX_WAITERS: usize = 1_000;

    /// A queue in which requests wait for at most this long, and at most
    /// [`MAX_WAITERS`](Self::MAX_WAITERS) of them.
    #[must_use]
    pub const fn up_to(max_wait: Duration) -> Self {
        let (max_waiters, crowded) = (Self::MAX_WAITERS, Crowded::ServiceUnavailable);
        Self { max_wait, max_waiters, crowded }
    }

    /// Lets at most this many requests wait, all services of the layer together.
    #[must_use]
    pub const fn max_waiters(mut self, requests: usize) -> Self {
        self.max_waiters = requests;
        self
    }

    /// Says what a request is answered that finds the queue full.
    #[must_use]
    pub const fn crowded(mut self, crowded: Crowded) -> Self {
        self.crowded = crowded;
        self
    }
}

impl From<Duration> for Queue {
    fn from(max_wait: Duration) -> Self {
        Self::up_to(max_wait)
    }
}

/// How many wait. A clone counts from zero.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: AtomicUsize,
}

impl Clone for Seats {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Room for one request to wait, and by which rules; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<Rules>);

impl Seats {
    /// Whether one more may wait, as far as can be said now.
    pub(super) fn are_left(&self, queue: &Queue) -> bool {
        self.taken.load(Ordering::Relaxed) < queue.max_waiters
    }
}

impl Seat {
    /// A seat in the queue of a layer, unless all are taken.
    pub(super) fn take(rules: &Arc<Rules>, queue: &Queue) -> Option<Self> {
        let one_more = |taken: usize| taken.checked_add(1).filter(|&all| all <= queue.max_waiters);
        let taken = rules.seats.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| Self(Arc::clone(rules)))
    }

    pub(super) const fn rules(&self) -> &Arc<Rules> {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.seats.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
