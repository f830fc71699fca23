//! The settings of a queue.

use std::time::Duration;

use http::StatusCode;

use crate::limiter::Mode;

/// How long requests may wait for their turn, and how many may wait at once.
///
/// Where a queue is expected, a [`Duration`] will do: it is the longest wait. A request that was told a
/// later instant is refused at once, or [stays](Self::stay) for that time if tokens can come back.
///
/// All clients of a layer share its queue. [`max_waiters_per_key`](Self::max_waiters_per_key) says
/// how much of it one client can occupy.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::StatusCode;
/// use tollgate::middleware::Queue;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const LLM: Limit = Limit::new("llm", Quota::token_bucket(60, MINUTE).max_reserved(60));
///
/// let limiter = RateLimiter::in_memory();
/// let layer = limiter.layer(&LLM).queue(Duration::from_secs(30));
/// let queue = Queue::new(Duration::from_secs(30)).max_waiters(50);
/// let small = limiter.layer(&LLM).queue(queue.on_full(StatusCode::TOO_MANY_REQUESTS));
/// # drop((layer, small));
/// ```
#[doc(alias("delay", "slowDown", "backpressure"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub(super) max_wait: Duration,
    pub(super) max_waiters: usize,
    /// `None`: the bound depends on how many waiters the queue still has room for.
    max_waiters_per_key: Option<usize>,
    /// The status of a request that finds the queue full.
    pub(super) on_full: StatusCode,
    /// Whether requests stay that were told a later instant than they may wait for. `None`: if tokens
    /// can come back.
    stays: Option<bool>,
}

impl Queue {
    /// How many requests of a layer may wait at once by default.
    pub const MAX_WAITERS: usize = 1_000;

    /// Makes a queue in which at most [`MAX_WAITERS`](Self::MAX_WAITERS) requests wait, each for at
    /// most `max_wait`.
    #[must_use]
    pub const fn new(max_wait: Duration) -> Self {
        let (max_waiters, on_full) = (Self::MAX_WAITERS, StatusCode::SERVICE_UNAVAILABLE);
        Self { max_wait, max_waiters, max_waiters_per_key: None, on_full, stays: None }
    }

    /// Lets at most this many requests wait at once, in all services of the layer together.
    #[must_use]
    pub const fn max_waiters(mut self, requests: usize) -> Self {
        self.max_waiters = requests;
        self
    }

    /// Lets at most this many requests of one key wait at once.
    ///
    /// By default, a key may have one more waiter only while it has fewer waiters than the queue
    /// has free places. One key alone can occupy half of the queue, two keys a third each, and so
    /// on. So a client that floods the queue leaves room for others, and a client without a waiter
    /// can wait as long as the queue is not full. A bound of [`max_waiters`](Self::max_waiters) or
    /// more lets one key fill the queue.
    ///
    /// The keys are those of the layer's rules; with several rules, each of them counts. A rule
    /// with one bucket for [all requests](crate::key::global) has no such bound. A request above
    /// the bound of its key is answered with 429, whatever [`on_full`](Self::on_full) is, and with
    /// the `Retry-After` of any refusal.
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

    /// Keeps requests in line for the longest wait, also if their turn would come later than that.
    ///
    /// The instant of a request is computed on arrival from the costs of those before it. Where these
    /// are estimates, the turn often comes far sooner: as soon as work before it costs less, a
    /// response gives tokens back, or another waiter leaves. A request whose turn has not come when
    /// its time is up is refused then, with 429 and the `Retry-After` of that moment. Its tokens come
    /// back, and the waiters behind it move forward.
    ///
    /// It is the default if the layer can give tokens back: it [settles](crate::RateLimitLayer::settle)
    /// or [refunds dropped requests](crate::RateLimitLayer::refund_dropped), one of its rules has
    /// [`refund_if`](crate::Rule::refund_if) or [`reset_if`](crate::Rule::reset_if), or its handlers
    /// get an [`Admission`](super::Admission). So it is in memory for requests that wait for others
    /// [in flight](crate::Quota::in_flight). Call this if tokens come back by other ways, such as calls
    /// on the same limit.
    ///
    /// A request that could not run within the longest wait even if nothing was taken is answered
    /// with [413](crate::RateLimitLayer::too_large) at once. While the limiter is
    /// [drained](crate::RateLimiter::drain), a request is refused at once if its turn would come too
    /// late.
    ///
    /// # Examples
    ///
    /// A request for 30,000 tokens waits behind one that was estimated at 39,000, and costs 100:
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use http::{Request, Response};
    /// use tollgate::backend::Memory;
    /// use tollgate::clock::TokioClock;
    /// use tollgate::middleware::{ActualCost, Queue};
    /// use tollgate::{Head, Limit, MINUTE, Quota, RateLimiter};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// const LLM: Limit = Limit::new("llm", Quota::token_bucket(40_000, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Infallible> {
    /// let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
    /// let estimate = |head: &Head<'_>| head.extensions().get::<u64>().copied().unwrap_or(30_000);
    /// let queue = Queue::new(Duration::from_secs(30)).stay();
    /// let layer = limiter.layer(&LLM).cost_with(estimate).queue(queue).settle();
    /// let service = layer.layer(service_fn(async |_: Request<()>| {
    ///     tokio::time::sleep(Duration::from_millis(400)).await;
    ///     let mut response = Response::new(());
    ///     response.extensions_mut().insert(ActualCost::new(100));
    ///     Ok::<_, Infallible>(response)
    /// }));
    /// let (mut long, next) = (Request::new(()), Request::new(()));
    /// long.extensions_mut().insert(39_000_u64);
    /// // The second is told 44 seconds, and runs after 0.4.
    /// let (long, next) = tokio::join!(service.clone().oneshot(long), service.oneshot(next));
    /// assert_eq!((long?.status().as_u16(), next?.status().as_u16()), (200, 200));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn stay(mut self) -> Self {
        self.stays = Some(true);
        self
    }

    /// Refuses requests at once whose turn would come later than the longest wait.
    ///
    /// It is the default of layers that give no tokens back, since there only leavers move a request
    /// forward. With [`stay`](Self::stay), a request is refused later, but more of them run.
    #[must_use]
    pub const fn refuse_early(mut self) -> Self {
        self.stays = Some(false);
        self
    }

    /// How requests wait; `gives_back`: the layer can give tokens back.
    pub(super) fn mode(&self, gives_back: bool) -> Mode {
        match self.stays.unwrap_or(gives_back) {
            true => Mode::Stay(self.max_wait),
            false => Mode::Reserve(self.max_wait),
        }
    }

    /// Sets the status of requests that find the queue full.
    ///
    /// By default it is 503, as the service is overloaded. Choose 429 if it is rather that a client
    /// sends too many requests.
    #[must_use]
    pub const fn on_full(mut self, status: StatusCode) -> Self {
        self.on_full = status;
        self
    }

    /// Whether one more request may wait, besides `waiting` requests, of which `held` have the same
    /// key. `held` is `None` for a request without a key.
    ///
    /// The default bound is the one of switches in which all ports share a memory (Choudhury and
    /// Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998), with a
    /// factor of one. If `k` keys flood the queue, each gets `1 / (k + 1)` of it, and the same part
    /// stays free. For example, of 1,000 places one key gets 500: it then has 500 waiters, and 500
    /// places are free. A second key brings both down to 333, once waiters of the first have left.
    pub(super) const fn admits(
        &self,
        waiting: usize,
        held: Option<usize>,
    ) -> Result<(), StatusCode> {
        let free = self.max_waiters.saturating_sub(waiting);
        let is_at_bound = match (held, self.max_waiters_per_key) {
            _ if free == 0 => return Err(self.on_full),
            (Some(held), Some(most)) => held >= most,
            (Some(held), None) => held >= free,
            (None, _) => false,
        };
        // The queue still has room for other clients.
        if is_at_bound { Err(StatusCode::TOO_MANY_REQUESTS) } else { Ok(()) }
    }
}

impl From<Duration> for Queue {
    fn from(max_wait: Duration) -> Self {
        Self::new(max_wait)
    }
}
