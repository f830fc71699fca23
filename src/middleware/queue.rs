//! How requests wait for their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;

/// How long requests may wait for their turn, and how many of them at once.
///
/// A [`Duration`] is a queue in which requests wait for at most that long.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::middleware::{QueueFull, Queue};
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const LLM: Limit = Limit::new("llm", Quota::token_bucket(60, MINUTE).max_reserved(60));
///
/// let limiter = RateLimiter::in_memory();
/// let layer = limiter.layer(&LLM).queue(Duration::from_secs(30));
/// let queue = Queue::up_to(Duration::from_secs(30)).max_waiters(50).on_full(QueueFull::TooManyRequests);
/// let small = limiter.layer(&LLM).queue(queue);
/// # drop((layer, small));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub(super) max_wait: Duration,
    max_waiters: usize,
    pub(super) on_full: QueueFull,
}

/// How to answer a request that finds the queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueFull {
    /// 503: the service has more to do than it can.
    #[default]
    ServiceUnavailable,
    /// 429: the client asks for more than its share.
    TooManyRequests,
}

impl QueueFull {
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
        let (max_waiters, on_full) = (Self::MAX_WAITERS, QueueFull::ServiceUnavailable);
        Self { max_wait, max_waiters, on_full }
    }

    /// Lets at most this many requests wait, all services of the layer together.
    #[must_use]
    pub const fn max_waiters(mut self, requests: usize) -> Self {
        self.max_waiters = requests;
        self
    }

    /// Sets how a request is answered that finds the queue full.
    #[must_use]
    pub const fn on_full(mut self, on_full: QueueFull) -> Self {
        self.on_full = on_full;
        self
    }
}

impl From<Duration> for Queue {
    fn from(max_wait: Duration) -> Self {
        Self::up_to(max_wait)
    }
}

/// How many requests wait in all services of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct WaiterCount(Arc<AtomicUsize>);

/// Room for one request to wait; free again when it is dropped.
#[derive(Debug)]
pub(super) struct WaiterPlace(Arc<AtomicUsize>);

impl WaiterCount {
    /// Whether one more may wait, as far as is known now.
    pub(super) fn has_room(&self, queue: &Queue) -> bool {
        self.0.load(Ordering::Relaxed) < queue.max_waiters
    }

    /// Room for one more, unless the queue is full.
    pub(super) fn take(&self, queue: &Queue) -> Option<WaiterPlace> {
        let one_more = |taken: usize| taken.checked_add(1).filter(|&all| all <= queue.max_waiters);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| WaiterPlace(Arc::clone(&self.0)))
    }
}

impl Drop for WaiterPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
