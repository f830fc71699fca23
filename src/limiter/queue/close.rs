//! The end of waiting, for a shutdown.

use std::time::Duration;

use tokio::time::Instant;

use super::booking::{give_up, later};
use crate::limiter::RateLimiter;

impl RateLimiter {
    /// Lets nobody wait in a layer's queue for longer than this from now on, for a shutdown.
    ///
    /// Requests whose turn comes within that time are served at their turn. The others are answered
    /// at once, with 503, and give up their places. Requests that arrive after this may wait for what
    /// is left of the time, and are answered with 503 if that is not enough.
    /// Reservations that are not a layer's are the business of those who hold them.
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
        let end = later(Instant::now(), within);
        for (entrance, free) in self.lines().close(end) {
            // The last first, so that each is untouched when it is its turn to be undone.
            for place in free {
                give_up(self, &entrance.whose, Some(&entrance), Some(place));
            }
            self.lines().tidy(&entrance);
        }
    }

    /// How long anybody may wait, if not for as long as they like.
    #[cfg(feature = "middleware")]
    pub(crate) fn patience(&self) -> Option<Duration> {
        Some(self.lines().end()?.saturating_duration_since(Instant::now()))
    }
}
