//! How requests wait for their turn.

use std::time::Duration;

use http::StatusCode;

/// How long requests may wait for their turn, and how many of them at once.
///
/// A [`Duration`] is a queue in which requests wait for at most that long.
///
/// The places belong to the layer, and its clients share them: see
/// [`max_waiters_per_key`](Self::max_waiters_per_key).
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
/// let queue = Queue::new(Duration::from_secs(30)).max_waiters(50).on_full(QueueFull::TooManyRequests);
/// let small = limiter.layer(&LLM).queue(queue);
/// # drop((layer, small));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub(super) max_wait: Duration,
    max_waiters: usize,
    /// None if it depends on how many places are free.
    max_waiters_per_key: Option<usize>,
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
    pub const fn new(max_wait: Duration) -> Self {
        let (max_waiters, on_full) = (Self::MAX_WAITERS, QueueFull::ServiceUnavailable);
        Self { max_wait, max_waiters, max_waiters_per_key: None, on_full }
    }

    /// Lets at most this many requests wait, all services of the layer together.
    #[must_use]
    pub const fn max_waiters(mut self, requests: usize) -> Self {
        self.max_waiters = requests;
        self
    }

    /// Lets at most this many requests of one key wait, all services of the layer together.
    ///
    /// Where it is not set, a key may have one more only while it has fewer than there are free
    /// places: it has half of the places at most, with another one a third, and so on. So a client
    /// that asks without end leaves room for the others, and a client that has no waiter finds a
    /// place while there is one. [`max_waiters`](Self::max_waiters) and more lets one key have all
    /// of the places.
    ///
    /// The keys are those of the layer's rules; of several, each counts. A rule of
    /// [all requests](crate::key::global) has no clients to tell apart, and so no bound but that of
    /// the queue. What is above the bound of its key is answered with 429, whatever
    /// [`on_full`](Self::on_full) says: its client has its share of the queue. `Retry-After` is
    /// that of any refusal.
    ///
    /// This bounds requests; [`max_reserved`](crate::Quota::max_reserved) bounds the tokens that
    /// the requests of a key may wait for.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::key::ClientIp;
    /// use tollgate::middleware::Queue;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(60, MINUTE));
    ///
    /// let queue = Queue::new(Duration::from_secs(30)).max_waiters_per_key(20);
    /// let layer = RateLimiter::in_memory().layer(&PER_CLIENT).key(ClientIp::peer()).queue(queue);
    /// # drop(layer);
    /// ```
    #[must_use]
    pub const fn max_waiters_per_key(mut self, requests: usize) -> Self {
        self.max_waiters_per_key = Some(requests);
        self
    }

    /// Sets how a request is answered that finds the queue full.
    #[must_use]
    pub const fn on_full(mut self, on_full: QueueFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// Whether one more may wait where so many places are `taken`, of which its key has `held`; that
    /// is none if it has no key.
    ///
    /// The bound that depends on the free places is that of packet switches whose ports share a
    /// memory (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
    /// switches", 1998), with a factor of one: `k` keys that ask without end have `1 / (k + 1)` of
    /// the places each, and as many stay free.
    pub(super) const fn admits(
        &self,
        waiting: usize,
        held: Option<usize>,
    ) -> Result<(), QueueRefusal> {
        let free = self.max_waiters.saturating_sub(waiting);
        match (held, self.max_waiters_per_key) {
            _ if free == 0 => Err(QueueRefusal::Full),
            (Some(held), Some(most)) if held >= most => Err(QueueRefusal::KeyAtBound),
            (Some(held), None) if held >= free => Err(QueueRefusal::KeyAtBound),
            _ => Ok(()),
        }
    }
}

/// Why a request finds no place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueRefusal {
    Full,
    /// Its key has as many waiters as it may.
    KeyAtBound,
}

impl From<Duration> for Queue {
    fn from(max_wait: Duration) -> Self {
        Self::new(max_wait)
    }
}
