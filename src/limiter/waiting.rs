//! How many requests wait for a limit, and the end of all waiting for a shutdown.

use std::time::Duration;

use super::engine::RateLimiter;
use super::peek::PeekCall;
use super::progress::BucketCall;

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
        let queues = self.queues();
        queues.drain(within);
        #[cfg(feature = "memory")]
        if let (Some(memory), Some(id)) = (self.lines(), queues.id()) {
            // The deadline is set already. So no request is missed while the shards are visited one
            // by one: one that enters its line behind the visit reads the deadline at its first
            // poll.
            memory.drain(id, queues.time_to_drain().unwrap_or(within));
        }
    }
}

/// How many requests of this process wait. Not awaited: each method reads the current numbers at once,
/// and never asks a store that other processes use as well.
///
/// In memory, a request waits from its reservation until it is granted, whether it is awaited or not.
/// In other stores, it waits from the first poll of [`ready`](super::Reservation::ready), and the
/// requests count that this limiter and its clones have let in. A reservation that is
/// [kept](super::Reservation::keep) does not wait. A request that waits for two shards of a limit counts
/// twice.
impl PeekCall<'_> {
    /// How many requests wait for this bucket.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, Quota, RateLimited, RateLimiter, SECOND};
    ///
    /// const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let _first = limiter.limit(&SPACED).key("alice").reserve().await?;
    /// let second = limiter.limit(&SPACED).key("alice").reserve().await?;
    ///
    /// let alice = limiter.peek(&SPACED).key("alice");
    /// assert_eq!(alice.waiting(), 2);
    /// assert!(alice.longest_wait() > SECOND);
    /// drop(second);
    /// assert_eq!((alice.waiting(), alice.left_early()), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("queue_len", "queue_length"))]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.status().0
    }

    /// How long the last of them waits if no other leaves and no tokens come back; zero if none waits,
    /// and for requests [in flight](crate::Quota::in_flight), as nobody knows.
    ///
    /// It may be more than the longest wait of a queue whose requests [stay](crate::middleware::Queue::stay).
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        self.status().1
    }

    /// How many have left before their turn since a request last entered the empty queue.
    #[must_use]
    pub fn left_early(&self) -> u64 {
        self.status().2
    }

    fn status(&self) -> (usize, Duration, u64) {
        let BucketCall { limiter, limit, key, .. } = &self.call;
        #[cfg(feature = "memory")]
        if let Some(memory) = limiter.lines() {
            let levels = limit.shards(key).map(|id| memory.line_level(id));
            return levels.fold(Default::default(), |(count, longest, left), level| {
                let count = level.waiting.saturating_add(count);
                (count, level.longest.max(longest), level.left.saturating_add(left))
            });
        }
        limiter.queues().status(limit.name(), key)
    }
}
