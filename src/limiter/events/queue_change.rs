//! A change of a queue.

use std::time::Duration;

use super::decision::DecisionSource;
use crate::limiter::Limit;

/// A request that joins a queue or leaves it; told to [`Observer::on_queue`](super::Observer).
///
/// Each request that waits joins once and ends once, by one of the other [steps](QueueStep). So
/// those that have joined, less those that have ended, are the length of the queue.
///
/// A request over several limits waits for the one with the longest wait, and is told under that.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::limiter::{QueueChange, QueueStep};
/// use tollgate::{Limit, Observer, Quota, RateLimiter, SECOND};
///
/// const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
///
/// #[derive(Default)]
/// struct Steps(Mutex<Vec<QueueStep>>);
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
/// assert_eq!(*steps.0.lock().unwrap(), [QueueStep::Joined, QueueStep::Left]);
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

    /// Whether the request waits in the queue of a layer, or by a reservation of a handler.
    #[must_use]
    pub const fn source(&self) -> DecisionSource {
        self.source
    }

    /// What the request did.
    #[must_use]
    pub const fn step(&self) -> QueueStep {
        self.step
    }

    /// How long it has waited; zero when it [joins](QueueStep::Joined).
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// How much later than promised its work runs, if it [was served](QueueStep::Served): zero if
    /// it runs at the instant that it was told, or earlier.
    ///
    /// In a layer, the wait for the inner service to be ready is a part of it.
    #[must_use]
    pub const fn lateness(&self) -> Option<Duration> {
        self.lateness
    }
}

/// What a request did in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueStep {
    /// It began to wait.
    Joined,
    /// Its turn has come, and its work runs.
    Served,
    /// It was dropped before its work ran: its client has disconnected, or its reservation was
    /// cancelled.
    Left,
    /// It was sent away by [`RateLimiter::drain`](crate::RateLimiter::drain).
    Drained,
    /// Its reservation was [kept](crate::Reservation::keep): the work is planned, and no longer
    /// waits here.
    Kept,
    /// It has waited for the longest time that its queue allows, and was refused. It was told a later
    /// instant and [stayed](crate::middleware::Queue::stay) in case tokens come back.
    Expired,
}

impl QueueStep {
    /// How many there are.
    #[doc(hidden)]
    pub const COUNT: usize = 6;

    /// Its place in a table of all.
    #[doc(hidden)]
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the variants are numbered from 0 on")]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics, spans and logs, such as `"served"`.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(tollgate::limiter::QueueStep::Served.name(), "served");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Served => "served",
            Self::Left => "left",
            Self::Drained => "drained",
            Self::Kept => "kept",
            Self::Expired => "expired",
        }
    }
}
