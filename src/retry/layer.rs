//! The layer, which holds the policy.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Retry;
use super::policy::RetryPolicy;
use crate::key::Head;
use crate::limiter::Random;

/// Retries requests that are answered with 429 or 503, at the time that `Retry-After` says.
///
/// See the [module docs](super) for examples.
#[doc(alias = "backoff")]
#[derive(Clone, Default)]
pub struct RetryLayer {
    policy: Arc<RetryPolicy>,
}

impl RetryLayer {
    /// Makes a layer that sends any request up to five times, waits up to 30 seconds in total, and adds
    /// no jitter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a request at most this many times, including the first; 5 by default.
    ///
    /// With 1, nothing is retried. 0 is the same as 1.
    #[doc(alias = "max_retries")]
    #[doc(alias = "attempts")]
    #[must_use]
    pub fn tries(self, sends: u32) -> Self {
        self.with(|policy| policy.tries = sends)
    }

    /// Limits the sum of all waits of one request; 30 seconds by default.
    ///
    /// A refusal that asks for a wait beyond it is returned at once.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|policy| policy.max_wait = max_wait)
    }

    /// Adds a random time of at most `spread` to each wait; none by default.
    ///
    /// Clients that were refused at the same time then do not come back at the same time. The addition
    /// counts towards [`max_wait`](Self::max_wait). It is cut where it would exceed that, so chance never
    /// decides whether a request is retried.
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
    /// A server that says when to come back has not done the work, so a `POST` can be retried as well as
    /// a `GET`. For servers on which you cannot rely for that:
    ///
    /// ```
    /// use tollgate::retry::RetryLayer;
    ///
    /// let layer = RetryLayer::new().only(|head| head.method().is_idempotent());
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn only<F>(self, only: F) -> Self
    where
        F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        self.with(|policy| policy.only = Arc::new(only))
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
