//! The wait of a reservation, how many requests wait for a limit, and the end of all waiting for a
//! shutdown.

use std::future::{pending, poll_fn};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::engine::RateLimiter;
use super::events::QueueStep;
use super::peek::PeekCall;
use super::progress::BucketCall;
use super::queue::{ReservedSlot, later};

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
        let queues = &self.state.queues;
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
        limiter.state.queues.status(limit.name(), key)
    }
}

/// Waits for the turn of `slot` of any store, and for `jitter` longer. `drains` are those of the
/// limiter that can drain it, if one can: the instant after which no request may wait.
///
/// It gives up at the instant `expires`, unless the turn has come by then. That has to be before the
/// instant that the caller was told, and is `None` if the turn comes before it anyway.
///
/// Dropping the future before it completes cancels the reservation.
///
/// # Errors
///
/// How its stay has ended without a turn: the limiter was drained, and its turn would have come too
/// late, or it has waited for as long as it may. It has given up its slot.
pub(crate) async fn wait_for_turn(
    slot: &mut dyn ReservedSlot,
    jitter: Duration,
    mut drains: Option<watch::Receiver<Option<Instant>>>,
    expires: Option<Instant>,
) -> Result<(), QueueStep> {
    let turn = slot.enter(drains.is_some());
    // A waiter that enters after the drain is in none of the queues that the drain has visited, so it
    // reads the instant itself.
    if drains.as_ref().and_then(|drains| *drains.borrow()).is_some_and(|end| end < turn) {
        return Err(QueueStep::Drained);
    }
    let (mut timer, mut has_checked) = (None, false);
    poll_fn(|cx| {
        loop {
            let Some(until) = slot.poll(cx)? else { return Poll::Ready(Ok(())) };
            // Only after the poll, which grants what is due: if the turn comes at this very instant,
            // the work runs.
            if expires.is_some_and(|end| end <= Instant::now()) {
                return Poll::Ready(Err(QueueStep::Expired));
            }
            let until = expires.map_or(until, |end| end.min(until));
            // The timer has fired, but the store's clock has not reached the instant. Polling again at
            // once would be a busy loop.
            let again = Instant::now().checked_add(RECHECK_INTERVAL).filter(|_| has_checked);
            let until = again.map_or(until, |again| again.max(until));
            has_checked = false;
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            ready!(timer.as_mut().poll(cx));
            // At the instant that it was told, and not when it gives up before that.
            if expires.is_none() {
                slot.grant();
            }
            has_checked = true;
        }
    })
    .await?;
    if jitter.is_zero() {
        return Ok(());
    }
    let until = later(Instant::now(), jitter);
    let until = expires.map_or(until, |end| end.min(until));
    loop {
        let drain_end = drains.as_ref().and_then(|drains| *drains.borrow());
        let end = drain_end.map_or(until, |end| end.min(until));
        // The limiter may be drained meanwhile, and again with an earlier instant. None is missed: it
        // completes with any drain since the last one that it has seen.
        let drained = async {
            if let Some(drains) = &mut drains
                && drains.changed().await.is_ok()
            {
                return;
            }
            pending().await
        };
        if timeout_at(end, drained).await.is_err() {
            return Ok(());
        }
    }
}

/// How long a waiter waits before it polls again, if its instant has come and its turn has not.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);
