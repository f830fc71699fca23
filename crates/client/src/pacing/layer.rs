//! The layer: holds the settings and the hosts, and makes services.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tower_layer::Layer;

use super::Pace;
use super::hosts::Hosts;
use super::quota::OwnQuota;
use super::settings::PacingSettings;
use crate::Unreadable;
use tollgate::key::Head;

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
    /// Makes a layer that knows no host yet, and in which a request waits for an hour at most.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds the time that a request waits for the limits of the server; one hour by default.
    ///
    /// A request that has waited for so long is sent, whatever the limits are, so its caller gets
    /// the answer of the server, which in most cases is a refusal. If the first in the line would
    /// have to wait longer, it is sent at once, but only one request in each `max_wait`. The
    /// client's own [`quota`](Self::quota) is kept in any case.
    ///
    /// A caller that can wait less puts a timeout around the call: a request whose future is
    /// dropped in the line is not sent.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|settings| settings.max_wait = max_wait)
    }

    /// Sends at most so many requests to each host in any time of this period, also if the server
    /// shows nothing; without this, only the answers of the server count.
    ///
    /// This holds however the server counts: by a bucket, by windows, or by a log of the last
    /// period. A request counts from the time it is sent until a period after its answer, or after
    /// its future was dropped. So the client uses the share `period / (period + time of an answer)`
    /// of the quota, and none is refused because requests take longer or shorter on their way. Call
    /// it once for each quota, if there are several. It takes 16 bytes for each request that counts.
    ///
    /// ```
    /// use tollgate_client::pacing::PacingLayer;
    /// use tollgate::{MINUTE, SECOND};
    ///
    /// let layer = PacingLayer::new().quota(20, SECOND).quota(100, 2 * MINUTE);
    /// # drop(layer);
    /// ```
    #[doc(alias("rate", "requests_per_second"))]
    #[must_use]
    pub fn quota(self, requests: u32, period: Duration) -> Self {
        // The hosts that are known already do not count by it.
        let layer = Self { hosts: Arc::default(), ..self };
        layer.with(|settings| settings.quotas.push(OwnQuota::new(requests, period)))
    }

    /// Sets the statuses that refuse a request, in place of 403, 429 and 503.
    ///
    /// 403 refuses only if the response names a wait. See [`Reader`](crate::Reader).
    #[must_use]
    pub fn statuses(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.with(|settings| settings.reader = settings.reader.clone().statuses(statuses))
    }

    /// Calls this for each field about limits that cannot be read, once for each host, whose name
    /// it gets, and for 32 of a host at most. With the feature `tracing`, the log has a line for it
    /// anyway.
    #[must_use]
    pub fn on_unreadable<F>(self, on_unreadable: F) -> Self
    where
        F: Fn(&str, &Unreadable) + Send + Sync + 'static,
    {
        self.with(|settings| settings.told.set(Arc::new(on_unreadable)))
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
    /// The host that was not used for longest is forgotten first, with its pause and with what
    /// counts for its [`quota`](Self::quota). Each takes a few hundred bytes.
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
    /// use tollgate_client::pacing::PacingLayer;
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
