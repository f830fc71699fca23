//! The layer: a policy, ready to be put around clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Retry;
use super::policy::Policy;
use crate::key::Head;
use crate::limiter::Random;

/// Sends requests again that are answered with 429 or 503, when `Retry-After` says so.
///
/// See the [module docs](super) for examples.
#[derive(Clone, Default)]
pub struct RetryLayer {
    policy: Arc<Policy>,
}

impl RetryLayer {
    /// Makes a layer that sends any request up to five times, waits up to 30 seconds in all, and
    /// adds no jitter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a request at most this often, the first time included; 5 if nothing else is said.
    ///
    /// With 1, nothing is sent again. With 0 neither, as the first send is not a retry.
    #[must_use]
    pub fn tries(self, sends: u32) -> Self {
        self.with(|policy| policy.tries = sends)
    }

    /// Waits at most this long for one request, all its waits together; 30 seconds if nothing else
    /// is said.
    ///
    /// A refusal that asks for more than what is left of it is returned at once.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|policy| policy.max_wait = max_wait)
    }

    /// Makes each wait longer at random, by at most this much, and never shorter.
    ///
    /// Clients that were refused together then do not come back together. The addition counts
    /// towards [`max_wait`](Self::max_wait); it gets smaller where that would be exceeded, so that
    /// chance never decides whether a request is sent again.
    #[must_use]
    pub fn jitter(self, spread: Duration) -> Self {
        self.with(|policy| policy.jitter = spread)
    }

    /// Draws the jitter from this seed, so that a test gets the same waits in each run.
    ///
    /// All services that are made from here on by the layer and by its clones draw from one
    /// sequence.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.with(|policy| policy.random = Random::seeded(seed))
    }

    /// Sends only those requests again of which this function says so; all if nothing else is
    /// said.
    ///
    /// A server that says when to come back has not done the work, so that a `POST` may be sent
    /// again as well as a `GET`. For servers that cannot be trusted with that:
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

    fn with(mut self, change: impl FnOnce(&mut Policy)) -> Self {
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
