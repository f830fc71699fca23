//! The end of waiting, for a shutdown.

use std::time::Duration;
use tokio::time::Instant;

use crate::limiter::engine::RateLimiter;

impl RateLimiter {
    /// Lets no request wait in a layer's queue for longer than this from now on, for a shutdown.
    ///
    /// Requests whose turn comes within that time are served at their turn. The others are answered
    /// at once, with 503, and give up their slots. Requests that arrive after this may wait for
    /// what is left of the time, and are answered with 503 if that is not enough. Reservations that
    /// handlers hold are left to them.
    ///
    /// It concerns all clones of the limiter. Of several calls, the one that ends first counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RateLimiter;
    ///
    /// async fn stopped(limiter: RateLimiter) {
    ///     // wait here for the signal to stop
    ///     limiter.drain(Duration::from_secs(10));
    /// }
    ///
    /// # async fn serve(listener: tokio::net::TcpListener, app: axum::Router) -> std::io::Result<()> {
    /// let limiter = RateLimiter::in_memory();
    /// axum::serve(listener, app).with_graceful_shutdown(stopped(limiter)).await
    /// # }
    /// ```
    pub fn drain(&self, within: Duration) {
        let queues = self.queues();
        let now = queues.epoch().now();
        let (end, waiting) = queues.drain(now.plus(within));
        #[cfg(feature = "memory")]
        if let (Some(memory), Some(id)) = (self.memory(), queues.id()) {
            memory.drain(id, self.time_to_drain().unwrap_or(within));
        }
        for queue in waiting {
            queue.with(|waiters, wakers| waiters.drain(end, now, wakers));
            queue.undo_free_slots();
        }
    }

    /// How long a request may wait, if there is a bound.
    pub(crate) fn time_to_drain(&self) -> Option<Duration> {
        let (epoch, end) = (self.queues().epoch(), self.queues().drain_deadline()?);
        Some(epoch.instant(end).saturating_duration_since(Instant::now()))
    }
}
