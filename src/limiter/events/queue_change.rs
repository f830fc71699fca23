//! A change of a queue.

use std::time::Duration;

use super::decision::DecisionSource;
use crate::limiter::Limit;

/// A request that joins a queue or leaves it; told to [`Observer::on_queue`](super::Observer).
///
/// Each request that waits joins once and ends once, by one of the other [steps](Self::step). So
/// those that have joined, less those that have ended, are the length of the queue.
///
/// A request over several limits waits for the one with the longest wait, and is told under that.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::limiter::QueueChange;
/// use tollgate::{Limit, Observer, Quota, RateLimiter, SECOND};
///
/// const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
///
/// #[derive(Default)]
/// struct Steps(Mutex<Vec<&'static str>>);
///
/// impl Observer for Steps {
///     fn on_queue(&self, change: &QueueChange<'_>) {
///         self.0.lock().unwrap().push(change.step());
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tollgate::RateLimited> {
/// let steps = Arc::new(Steps::default());
/// let limiter = RateLimiter::in_memory().observe(steps.clone());
/// drop(limiter.limit(&SPACED).reserve().await?);
/// assert_eq!(*steps.0.lock().unwrap(), ["joined", "left"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct QueueChange<'a> {
    pub(super) limit: &'a Limit,
    pub(super) source: DecisionSource,
    pub(super) step: QueueStep,
    pub(super) waited: Duration,
    pub(super) lateness: Option<Duration>,
}

impl<'a> QueueChange<'a> {
    /// The limit that makes the request wait; of several, the one with the longest wait.
    #[must_use]
    pub const fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// `"layer"` if the request waits in the queue of a layer, and `"handler"` if it waits by a
    /// reservation.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source.name()
    }

    /// What the request did, by its name in metrics, spans and logs, such as `"served"`: the methods
    /// below are named after these.
    #[must_use]
    pub const fn step(&self) -> &'static str {
        match self.step {
            QueueStep::Joined => "joined",
            QueueStep::Served => "served",
            QueueStep::Left => "left",
            QueueStep::Drained => "drained",
            QueueStep::Kept => "kept",
            QueueStep::Expired => "expired",
        }
    }

    /// Whether it began to wait.
    #[must_use]
    pub const fn has_joined(&self) -> bool {
        matches!(self.step, QueueStep::Joined)
    }

    /// Whether its turn has come, and its work runs.
    #[must_use]
    pub const fn was_served(&self) -> bool {
        matches!(self.step, QueueStep::Served)
    }

    /// Whether it was dropped before its work ran: its client has disconnected, or its reservation was
    /// cancelled.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        matches!(self.step, QueueStep::Left)
    }

    /// Whether it was sent away by [`RateLimiter::drain`](crate::RateLimiter::drain).
    #[must_use]
    pub const fn was_drained(&self) -> bool {
        matches!(self.step, QueueStep::Drained)
    }

    /// Whether its reservation was [kept](crate::Reservation::keep): the work is planned, and no longer
    /// waits here.
    #[must_use]
    pub const fn was_kept(&self) -> bool {
        matches!(self.step, QueueStep::Kept)
    }

    /// Whether it has waited for the longest time that its queue allows, and was refused. It was told a
    /// later instant and [stayed](crate::middleware::Queue::stay) in case tokens come back.
    #[must_use]
    pub const fn has_expired(&self) -> bool {
        matches!(self.step, QueueStep::Expired)
    }

    /// How many steps there are.
    #[doc(hidden)]
    pub const STEPS: usize = 6;

    /// The place of the step in a table of all.
    #[doc(hidden)]
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the variants are numbered from 0 on")]
    pub const fn step_index(&self) -> usize {
        self.step as usize
    }

    /// How long it has waited; zero when it [joins](Self::has_joined).
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// How much later than promised its work runs, if it [was served](Self::was_served): zero if
    /// it runs at the instant that it was told, or earlier.
    ///
    /// In a layer, the wait for the inner service to be ready is a part of it.
    #[must_use]
    pub const fn lateness(&self) -> Option<Duration> {
        self.lateness
    }
}

/// What a request did in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueStep {
    Joined,
    Served,
    Left,
    Drained,
    Kept,
    Expired,
}
