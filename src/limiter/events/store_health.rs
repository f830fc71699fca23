//! How the store of a limiter is: its answers that took time, and its failures.

use std::time::Duration;

use crate::backend::{BackendError, OnFailure};
use crate::limiter::Limit;

/// An answer that a limiter had to await; told to [`Observer::on_store_answer`](super::Observer).
///
/// It is the answer to one decision, reservation or shadow. Stores that answer at once, as memory
/// does, are not timed; nor are calls that are dropped before their answer.
#[derive(Clone, Debug)]
pub struct StoreAnswer<'a> {
    pub(in crate::limiter) took: Duration,
    pub(in crate::limiter) error: Option<&'a BackendError>,
}

impl<'a> StoreAnswer<'a> {
    /// The time from when the store was asked until its answer was read.
    #[must_use]
    pub const fn took(&self) -> Duration {
        self.took
    }

    /// Why there is no decision; `None` if there is one.
    #[must_use]
    pub const fn error(&self) -> Option<&'a BackendError> {
        self.error
    }

    /// The kind of that error, as [`StoreFailure::kind`].
    #[must_use]
    pub const fn kind(&self) -> Option<&'static str> {
        match self.error {
            Some(error) => Some(error_kind(error)),
            None => None,
        }
    }
}

/// A call that the store did not decide or carry out; told to
/// [`Observer::on_store_failure`](super::Observer).
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
/// use tollgate::backend::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};
/// use tollgate::limiter::StoreFailure;
/// use tollgate::{HOUR, Limit, Observer, OnFailure, Quota, RateLimiter};
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
/// struct Failures(Mutex<Vec<(&'static str, Option<OnFailure>)>>);
///
/// impl Observer for Failures {
///     fn on_store_failure(&self, failure: &StoreFailure<'_>) {
///         self.0.lock().unwrap().push((failure.kind(), failure.on_failure()));
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let failures = Arc::new(Failures::default());
/// let limiter = RateLimiter::new(Late).observe(failures.clone());
/// assert!(limiter.limit(&LOGIN).await.is_err());
/// assert!(limiter.on_failure(OnFailure::Admit).limit(&LOGIN).await.is_ok());
/// let told = [("timeout", Some(OnFailure::Refuse)), ("timeout", Some(OnFailure::Admit))];
/// assert_eq!(*failures.0.lock().unwrap(), told);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StoreFailure<'a> {
    pub(in crate::limiter) limit: &'a Limit,
    pub(in crate::limiter) error: &'a BackendError,
    pub(in crate::limiter) on_failure: Option<OnFailure>,
    pub(in crate::limiter) is_first: bool,
    pub(in crate::limiter) outage: Option<u64>,
}

impl<'a> StoreFailure<'a> {
    /// The limit that the call was about; of several, the first.
    #[must_use]
    pub const fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// Why the store did not do it. Its text may name a server, and never a key.
    #[must_use]
    pub const fn error(&self) -> &'a BackendError {
        self.error
    }

    /// Whether the request passed all the same, uncounted; `None` if a
    /// [`Fallback`](crate::backend::Fallback) has decided about it, or if it was asked for a rule in
    /// shadow mode, which decides about nothing.
    #[must_use]
    pub const fn on_failure(&self) -> Option<OnFailure> {
        self.on_failure
    }

    /// Whether an outage begins with this, or a time in which the store is full or misconfigured.
    /// The log has a line for it, and none for the failures of its kind that come after it until
    /// the store [recovers](StoreRecovery).
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.is_first
    }

    /// The number of the outage that this belongs to, or of the time in which the store is full or
    /// misconfigured: the first in the life of the limiter is one. Its [end](StoreRecovery::outage)
    /// has the same. `None` if this failure does not last: a client can cause it.
    #[must_use]
    pub const fn outage(&self) -> Option<u64> {
        self.outage
    }

    /// The kind of the failure in one word, for labels: `"circuit_open"`, `"full"`,
    /// `"in_transaction"`, `"misconfigured"`, `"overload"`, `"timeout"`, `"unavailable"` or
    /// `"undecidable"`. The predicates of the [error](Self::error) tell more.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        error_kind(self.error)
    }
}

/// The end of an outage, or of a time in which the store was full or misconfigured; told to
/// [`Observer::on_store_recovery`](super::Observer).
///
/// Requests run at once, so an observer may be told the end of an outage after the next one has
/// begun. The [number](Self::outage) of the outage says which has ended.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::Observer;
/// use tollgate::limiter::{StoreFailure, StoreRecovery};
///
/// #[derive(Default)]
/// struct Pager {
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
///     fn on_store_failure(&self, failure: &StoreFailure<'_>) {
///         if let Some(outage) = failure.outage().filter(|_| failure.is_first()) {
///             self.begun.fetch_max(outage, Ordering::SeqCst);
///             println!("outage {outage} of the store: {}", failure.error());
///         }
///     }
///
///     fn on_store_recovery(&self, recovery: &StoreRecovery<'_>) {
///         let (outage, admitted) = (recovery.outage(), recovery.admitted());
///         self.ended.fetch_max(outage, Ordering::SeqCst);
///         println!("outage {outage} is over; meanwhile {admitted} decisions admitted");
///     }
/// }
///
/// assert!(!Pager::default().store_is_down());
/// ```
#[derive(Clone, Debug)]
pub struct StoreRecovery<'a> {
    pub(in crate::limiter) limit: &'a Limit,
    pub(in crate::limiter) outage: u64,
    pub(in crate::limiter) admitted: u64,
    pub(in crate::limiter) refused: u64,
}

impl<'a> StoreRecovery<'a> {
    /// The limit that the store has charged.
    #[must_use]
    pub const fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// The number of the outage that has ended, as [`StoreFailure::outage`].
    #[must_use]
    pub const fn outage(&self) -> u64 {
        self.outage
    }

    /// How many decisions admitted meanwhile without the store: those of a
    /// [`Fallback`](crate::backend::Fallback), or uncounted for [`OnFailure::Admit`].
    ///
    /// Each layer, each call of a handler and each [`charge`](crate::middleware::Admission::charge)
    /// of a layer is one, over however many limits. So a request may have several. What only shadows
    /// have asked for is none.
    #[must_use]
    pub const fn admitted(&self) -> u64 {
        self.admitted
    }

    /// How many decisions refused meanwhile without the store: those of a
    /// [`Fallback`](crate::backend::Fallback), or with 503.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

/// The kind of an error in one word, for labels.
const fn error_kind(error: &BackendError) -> &'static str {
    // An overload is a timeout as well, and an open circuit an outage.
    if error.is_circuit_open() {
        "circuit_open"
    } else if error.is_overload() {
        "overload"
    } else if error.is_in_transaction() {
        "in_transaction"
    } else if error.is_timeout() {
        "timeout"
    } else if error.is_full() {
        "full"
    } else if error.is_misconfigured() {
        "misconfigured"
    } else if error.is_outage() {
        "unavailable"
    } else {
        "undecidable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words are labels of metrics, and the guide on observing lists them.
    #[test]
    fn each_kind_of_error_has_its_word() {
        let within = Duration::from_millis(50);
        let down = || BackendError::unavailable("s", "it is down");
        for (error, kind) in [
            (down(), "unavailable"),
            (BackendError::timeout("s", within), "timeout"),
            (BackendError::locked("s", within), "timeout"),
            (BackendError::circuit_open(within, down()), "circuit_open"),
            (BackendError::full("s", "no room"), "full"),
            (BackendError::misconfigured("s", "no rights"), "misconfigured"),
            (BackendError::overloaded("s", within), "overload"),
            (down().in_transaction(), "in_transaction"),
            (BackendError::undecidable("s", "no bucket"), "undecidable"),
            (BackendError::cross_slot("a`, `b"), "undecidable"),
            (BackendError::incomplete(), "undecidable"),
        ] {
            assert_eq!(error_kind(&error), kind, "{error}");
        }
    }
}
