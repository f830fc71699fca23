//! The layer: holds the policy, and makes services.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tower::retry::budget::Budget;
use tower_layer::Layer;

use super::Retry;
use super::policy::RetryPolicy;
use crate::Unreadable;
use tollgate::key::Head;
use tollgate::kit::Random;

/// Retries requests that a server refuses, after the time that it names.
///
/// The body of the requests has to be `Clone`, such as a `Full<Bytes>`, since a retry sends it again.
/// With `axum::body::Body` or a stream, the service compiles and its `call` does not.
///
/// See the [module docs](super) for examples.
#[doc(alias("backoff", "retry-after", "Retry-After", "429"))]
#[derive(Clone, Default)]
pub struct RetryLayer {
    policy: Arc<RetryPolicy>,
}

impl RetryLayer {
    /// Makes a layer that sends a request up to five times and waits up to 30 seconds in total.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a request at most this many times, including the first time; 5 by default.
    ///
    /// With 1, no request is retried. 0 is the same as 1.
    #[doc(alias("max_retries", "attempts"))]
    #[must_use]
    pub fn tries(self, sends: u32) -> Self {
        self.with(|policy| policy.tries = sends)
    }

    /// Bounds the sum of all waits of one request; 30 seconds by default.
    ///
    /// If the next wait would exceed it, the refusal is returned at once.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|policy| policy.max_wait = max_wait)
    }

    /// Adds a random time of at most `spread` to each wait; zero by default.
    ///
    /// Clients that were refused at the same time then do not retry at the same time. The addition
    /// counts towards [`max_wait`](Self::max_wait), and is cut off there, so it never prevents a
    /// retry.
    #[must_use]
    pub fn jitter(self, spread: Duration) -> Self {
        self.with(|policy| policy.jitter = spread)
    }

    /// Seeds the random numbers of the jitter, so that a test gets the same waits in each run.
    ///
    /// All services that the layer and its clones make after this call draw from one sequence.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.with(|policy| policy.random = Random::seeded(seed))
    }

    /// Retries only the requests for which `only` returns true; all of them by default.
    ///
    /// A server that sends `Retry-After` has not done the work, so a `POST` can be retried like a
    /// `GET`. For servers that may have done the work:
    ///
    /// ```
    /// use tollgate_client::retry::RetryLayer;
    ///
    /// let layer = RetryLayer::new().only(|head| head.method().is_idempotent());
    /// # drop(layer);
    /// ```
    #[doc(alias("retry_if", "idempotent", "filter"))]
    #[must_use]
    pub fn only<F>(self, only: F) -> Self
    where
        F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        self.with(|policy| policy.only = Arc::new(only))
    }

    /// Waits by this policy where the server names no time; without one, the response is returned.
    ///
    /// The policy decides how long to wait and when to give up, and [`tries`](Self::tries) and
    /// [`max_wait`](Self::max_wait) bound it. A refusal by a client error, such as 429, is retried
    /// for each method. After any other, such as 503, the work may have been done, so only
    /// idempotent methods are retried, and requests with an `Idempotency-Key`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use retry_policies::{Jitter, policies::ExponentialBackoff};
    /// use tollgate_client::retry::RetryLayer;
    ///
    /// let half_a_second_to_ten = ExponentialBackoff::builder()
    ///     .retry_bounds(Duration::from_millis(500), Duration::from_secs(10))
    ///     .jitter(Jitter::Full)
    ///     .build_with_max_retries(4);
    /// let layer = RetryLayer::new().backoff(half_a_second_to_ten);
    /// # drop(layer);
    /// ```
    #[doc(alias("exponential"))]
    #[must_use]
    pub fn backoff<P>(self, policy: P) -> Self
    where
        P: retry_policies::RetryPolicy + Send + Sync + 'static,
    {
        self.with(|settings| settings.backoff = Some(Arc::new(policy)))
    }

    /// Retries only while this budget has room; without one, each request has its own tries only.
    ///
    /// Each response that is no refusal pays in, unless its request could not be sent again in any
    /// case: its tries are used up, or `only` excludes it. Each retry takes out. So while a server
    /// refuses all requests, retries soon end, and the refusals are returned.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate_client::retry::RetryLayer;
    /// use tower::retry::budget::TpsBudget;
    ///
    /// // One retry for five requests, and ten a second in any case.
    /// let layer = RetryLayer::new().budget(TpsBudget::new(Duration::from_secs(10), 10, 0.2));
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn budget<T>(self, budget: T) -> Self
    where
        T: Budget + Send + Sync + 'static,
    {
        self.with(|policy| policy.budget = Some(Arc::new(budget)))
    }

    /// Sets the statuses that refuse a request, in place of 403, 429 and 503.
    ///
    /// 403 refuses only if the response names a wait. See [`Reader`](crate::Reader).
    #[must_use]
    pub fn statuses(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.with(|policy| policy.reader = policy.reader.clone().statuses(statuses))
    }

    /// Calls this for each field about limits that cannot be read, once for each host, whose name
    /// it gets, and for 32 of a host at most. With the feature `tracing`, the log has a line for it
    /// anyway.
    #[must_use]
    pub fn on_unreadable<F>(self, on_unreadable: F) -> Self
    where
        F: Fn(&str, &Unreadable) + Send + Sync + 'static,
    {
        self.with(|policy| policy.told.set(Arc::new(on_unreadable)))
    }

    fn with(mut self, change: impl FnOnce(&mut RetryPolicy)) -> Self {
        change(Arc::make_mut(&mut self.policy));
        self
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry::new(inner, Arc::clone(&self.policy))
    }
}

impl fmt::Debug for RetryLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryLayer").field(&self.policy).finish()
    }
}
