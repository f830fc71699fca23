//! The layer: holds the settings and the hosts, and makes services.

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Pace;
use super::hosts::Hosts;
use super::settings::PacingSettings;
use crate::key::Head;

/// Sends requests no faster than the answers of each host allow.
///
/// All services that a layer and its clones make share what they know about hosts. See the [module
/// docs](super) for examples.
#[doc(alias("throttle", "X-RateLimit-Remaining", "RateLimit", "pacer"))]
#[derive(Clone, Debug, Default)]
pub struct PacingLayer {
    settings: Arc<PacingSettings>,
    hosts: Arc<Hosts>,
}

impl PacingLayer {
    /// Makes a layer that knows no host yet, and in which a request waits for a minute at most.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds the time that a request waits; one minute by default.
    ///
    /// A request that has waited for so long is sent, whatever the limits are. If it is the first
    /// in the line and would have to wait longer, it is sent at once. So the caller gets the answer
    /// of the server, which in most cases is a refusal.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|settings| settings.max_wait = max_wait)
    }

    /// Leaves this many tokens of each limit to other clients; none by default.
    ///
    /// Of a limit with a smaller quota, one token is used.
    #[must_use]
    pub fn headroom(self, tokens: u64) -> Self {
        self.with(|settings| settings.headroom = tokens)
    }

    /// Bounds the number of hosts that are remembered; 1,000 by default, and at least one.
    ///
    /// The host that was not used for longest is forgotten first. Each takes a few hundred bytes.
    #[must_use]
    pub fn max_hosts(self, hosts: usize) -> Self {
        self.with(|settings| settings.max_hosts = hosts)
    }

    /// Counts requests with equal keys together; by default, the key is scheme and authority.
    ///
    /// Requests without a key are sent at once. Use it for a server that has different limits for
    /// different routes or API keys:
    ///
    /// ```
    /// use tollgate::pacing::PacingLayer;
    ///
    /// let layer = PacingLayer::new().key_with(|head| {
    ///     let first = head.uri().path().split('/').nth(1)?; // "search", "repos"
    ///     Some(format!("{}/{first}", head.uri().authority()?))
    /// });
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn key_with<F>(self, key: F) -> Self
    where
        F: Fn(&Head<'_>) -> Option<String> + Send + Sync + 'static,
    {
        self.with(|settings| settings.key = Arc::new(key))
    }

    fn with(mut self, change: impl FnOnce(&mut PacingSettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for PacingLayer {
    type Service = Pace<S>;

    fn layer(&self, inner: S) -> Pace<S> {
        Pace::new(inner, Arc::clone(&self.settings), Arc::clone(&self.hosts))
    }
}
