//! Ends all waiting of a limiter, for a shutdown.

use std::time::Duration;
use tokio::time::Instant;

use crate::limiter::engine::RateLimiter;

impl RateLimiter {
    /// Lets no request wait in a layer's queue for longer than `within`, for a shutdown.
    ///
    /// A request with a turn within that time is served at its turn. All others are answered
    /// with 503 at once, and give up their slots. Requests that arrive later may wait for the rest
    /// of the time; those that would have to wait longer are answered with 503.
    ///
    /// It concerns all clones of the limiter. If it is called several times, the earliest end
    /// counts. A [`Reservation`](crate::Reservation) that your own code holds is not affected.
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
    #[doc(alias("shutdown", "close"))]
    pub fn drain(&self, within: Duration) {
        let (queues, now) = (self.queues(), Instant::now());
        // `Instant` may overflow beyond that.
        let end = now.checked_add(within.min(FAR_FUTURE)).unwrap_or(now);
        let (end, waiting) = queues.drain(end);
        #[cfg(feature = "memory")]
        if let (Some(memory), Some(id)) = (self.lines(), queues.id()) {
            // The deadline is set already. So no request is missed while the shards are visited one
            // by one: one that enters its line behind the visit reads the deadline at its first
            // poll.
            memory.drain(id, self.time_to_drain().unwrap_or(within));
        }
        for queue in waiting {
            queue.with(|waiters, wakers| waiters.drain(end, now, wakers));
            queue.undo_free_slots();
        }
    }

    /// How long a request may still wait, if the limiter is drained.
    pub(crate) fn time_to_drain(&self) -> Option<Duration> {
        let end = self.queues().drain_instant()?;
        Some(end.saturating_duration_since(Instant::now()))
    }
}

const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);
