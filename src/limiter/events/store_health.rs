//! How the store of a limiter is: its answers that took time, and its failures.

use std::time::Duration;

use crate::backend::{BackendError, OnFailure};
use crate::limiter::Limit;

/// How the store of a limiter is; told to [`Observer::on_store`](super::Observer::on_store).
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
/// use tollgate::backend::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};
/// use tollgate::limiter::StoreHealth;
/// use tollgate::{HOUR, Limit, Observer, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
///
/// #[derive(Debug)]
/// struct Late;
///
/// impl Backend for Late {
///     fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
///         Answer::Ready(Err(BackendError::timeout("late", Duration::from_millis(50))))
///     }
///     // .. the other two as well
/// #     fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
/// #         self.apply(&[])
/// #     }
/// #     fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
/// #         Answer::Ready(Ok(()))
/// #     }
/// }
///
/// #[derive(Default)]
/// struct Pager {
///     lines: Mutex<Vec<String>>,
///     begun: AtomicU64,
///     ended: AtomicU64,
/// }
///
/// impl Pager {
///     fn store_is_down(&self) -> bool {
///         self.begun.load(Ordering::SeqCst) > self.ended.load(Ordering::SeqCst)
///     }
/// }
///
/// impl Observer for Pager {
///     fn on_store(&self, health: &StoreHealth<'_>) {
///         let line = match *health {
///             StoreHealth::Failure { error, outage: Some(outage), is_first: true, .. } => {
///                 self.begun.fetch_max(outage, Ordering::SeqCst);
///                 format!("outage {outage} of the store: {}", error.kind())
///             }
///             StoreHealth::Recovery { outage, admitted, .. } => {
///                 self.ended.fetch_max(outage, Ordering::SeqCst);
///                 format!("outage {outage} is over; meanwhile {admitted} decisions admitted")
///             }
///             _ => return,
///         };
///         self.lines.lock().unwrap().push(line);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let pager = Arc::new(Pager::default());
/// let limiter = RateLimiter::new(Late).observe(pager.clone());
/// for _ in 0..2 {
///     assert!(limiter.limit(&LOGIN).await.is_err());
/// }
/// assert!(pager.store_is_down());
/// assert_eq!(*pager.lines.lock().unwrap(), ["outage 1 of the store: timeout"]);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreHealth<'a> {
    /// The store has answered a decision, a reservation or a shadow that had to be awaited.
    ///
    /// Stores that answer at once, as memory does, are not timed; nor are calls that are dropped
    /// before their answer.
    #[non_exhaustive]
    Answer {
        /// The time from when the store was asked until its answer was read.
        took: Duration,
        /// Why there is no decision; `None` if there is one.
        error: Option<&'a BackendError>,
    },
    /// The store did not decide a call, or did not carry it out. Each call is told, also if a
    /// [`Fallback`](crate::backend::Fallback) has decided.
    #[non_exhaustive]
    Failure {
        /// The limit that the call was about; of several, the first.
        limit: &'a Limit,
        /// Why the store did not do it. Its text may name a server, and never a key.
        error: &'a BackendError,
        /// Whether the request passed all the same, uncounted; `None` if a
        /// [`Fallback`](crate::backend::Fallback) has decided about it, or if it was asked for a
        /// rule in shadow mode, which decides about nothing.
        on_failure: Option<OnFailure>,
        /// Whether an outage begins with this, or a time in which the store is full or
        /// misconfigured. The log has a line for it, and none for the failures of its kind that come
        /// after it until the store [recovers](Self::Recovery).
        is_first: bool,
        /// The number of the outage that this belongs to, or of the time in which the store is full
        /// or misconfigured: the first in the life of the limiter is one. Its
        /// [end](Self::Recovery) has the same. `None` if this failure does not last: a client can
        /// cause it.
        outage: Option<u64>,
    },
    /// The end of an outage, or of a time in which the store was full or misconfigured: the store
    /// has charged a limit, and nothing has failed for a minute.
    ///
    /// All handles of a limiter share this state, and the one that notices it tells its observers.
    /// Requests run at once, so an observer may be told the end of an outage after the next one has
    /// begun. The number of the outage says which has ended.
    #[non_exhaustive]
    Recovery {
        /// The limit that the store has charged.
        limit: &'a Limit,
        /// The number of the outage that has ended, as that of its [failures](Self::Failure).
        outage: u64,
        /// How many decisions admitted meanwhile without the store: those of a
        /// [`Fallback`](crate::backend::Fallback), or uncounted for [`OnFailure::Admit`].
        ///
        /// Each layer, each call of a handler and each
        /// [`charge`](crate::middleware::Admission::charge) of a layer is one, over however many
        /// limits. So a request may have several. What only shadows have asked for is none.
        admitted: u64,
        /// How many decisions refused meanwhile without the store: those of a
        /// [`Fallback`](crate::backend::Fallback), or with 503.
        refused: u64,
    },
}
