//! The error of a backend.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Why a backend could not decide.
///
/// The message ends with that of the cause, where it is known, and with what caused that. So
/// [`source`](Error::source) is `None`, and a reporter that prints an error with its sources prints
/// each once. [`cause`](Self::cause) returns the cause itself.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::backend::BackendError;
///
/// let error = BackendError::timeout("redis", Duration::from_millis(50));
/// assert!(error.is_timeout());
/// assert_eq!(error.to_string(), "redis backend could not decide within 50 ms");
/// ```
#[derive(Clone, Debug)]
pub struct BackendError(pub(super) Problem);

/// `backend` is what kind of store it is, as in "redis".
#[derive(Clone, Debug)]
pub(super) enum Problem {
    Unavailable {
        backend: &'static str,
        cause: Arc<dyn Error + Send + Sync>,
    },
    Timeout {
        backend: &'static str,
        within: Duration,
    },
    Misconfigured {
        backend: &'static str,
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// Another transaction held what the call needed.
    Locked {
        backend: &'static str,
        within: Duration,
    },
    /// An outage inside a transaction of the application, which has to be rolled back.
    InTransaction {
        backend: &'static str,
        /// `None` if the answer was late.
        cause: Option<Arc<dyn Error + Send + Sync>>,
    },
    Undecidable {
        backend: &'static str,
        cause: Arc<dyn Error + Send + Sync>,
    },
    Full {
        backend: &'static str,
        cause: Arc<dyn Error + Send + Sync>,
    },
    Overloaded {
        backend: &'static str,
        within: Duration,
    },
    Contended {
        backend: &'static str,
        tries: u32,
    },
    CrossSlot {
        limits: String,
    },
    CircuitOpen {
        retry_after: Duration,
        last: Arc<BackendError>,
    },
    Incomplete,
    Internal {
        backend: &'static str,
        what: &'static str,
    },
}

impl BackendError {
    /// The store failed or could not be reached.
    pub fn unavailable(
        backend: &'static str,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self(Problem::Unavailable { backend, cause: Arc::from(cause.into()) })
    }

    /// The store did not answer in time.
    #[must_use]
    pub const fn timeout(backend: &'static str, within: Duration) -> Self {
        Self(Problem::Timeout { backend, within })
    }

    /// The store can never decide this call, however often it is sent: the bucket's key holds
    /// something else, say, or the numbers are too large for it.
    ///
    /// It is no [outage](Self::is_outage), so a layer refuses the request whatever its
    /// [`OnFailure`](crate::OnFailure): a client that finds such a call would pass each time.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::BackendError;
    ///
    /// let error = BackendError::undecidable("files", "the name of the key is too long");
    /// assert!(!error.is_outage());
    /// assert_eq!(
    ///     error.to_string(),
    ///     "files backend can never decide this: the name of the key is too long"
    /// );
    /// ```
    pub fn undecidable(
        backend: &'static str,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self(Problem::Undecidable { backend, cause: Arc::from(cause.into()) })
    }

    /// The store has no room for what this call would store.
    ///
    /// It is no [outage](Self::is_outage), so a layer refuses the request whatever its
    /// [`OnFailure`](crate::OnFailure): a client that makes up keys can fill a store by itself, and
    /// would lift all limits by it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::BackendError;
    ///
    /// let error = BackendError::full("files", "no space is left on the disk");
    /// assert!(error.is_full() && !error.is_outage());
    /// ```
    pub fn full(backend: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Problem::Full { backend, cause: Arc::from(cause.into()) })
    }

    /// This process was late, and not the store: its own work, or calls that wait to be sent, were in the
    /// way.
    ///
    /// It is no [outage](Self::is_outage), so a layer refuses the request whatever its
    /// [`OnFailure`](crate::OnFailure): a client that floods the process makes all calls late, and
    /// would lift all limits by it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backend::BackendError;
    ///
    /// let error = BackendError::overloaded("files", Duration::from_millis(50));
    /// assert!(error.is_overload() && error.is_timeout() && !error.is_outage());
    /// ```
    #[must_use]
    pub const fn overloaded(backend: &'static str, within: Duration) -> Self {
        Self(Problem::Overloaded { backend, within })
    }

    /// Another transaction held a lock that this call needed, for as long as it had time.
    ///
    /// It is no [outage](Self::is_outage), so a layer refuses the request whatever its
    /// [`OnFailure`](crate::OnFailure): a client causes it by a request whose transaction decides and
    /// stays open, and would have no limit meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backend::BackendError;
    ///
    /// let error = BackendError::locked("files", Duration::from_millis(50));
    /// assert!(error.is_timeout() && !error.is_outage());
    /// ```
    #[must_use]
    pub const fn locked(backend: &'static str, within: Duration) -> Self {
        Self(Problem::Locked { backend, within })
    }

    /// Whether another transaction held what the call needed.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        matches!(self.0, Problem::Locked { .. })
    }

    /// Other calls changed the buckets of this call each time that it tried to.
    ///
    /// It is no [outage](Self::is_outage), so a layer refuses the request whatever its
    /// [`OnFailure`](crate::OnFailure): a client that asks for one key from many connections causes it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::BackendError;
    ///
    /// let error = BackendError::contended("files", 16);
    /// assert!(error.is_overload() && !error.is_outage());
    /// ```
    #[must_use]
    pub const fn contended(backend: &'static str, tries: u32) -> Self {
        Self(Problem::Contended { backend, tries })
    }

    /// The store cannot be used as it is set up: its login, say, or the rights of its user.
    ///
    /// It is no [outage](Self::is_outage), so a layer refuses the request whatever its
    /// [`OnFailure`](crate::OnFailure): to admit would lift all limits until an operator notices.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::BackendError;
    ///
    /// let error = BackendError::misconfigured("files", "the folder is read-only");
    /// assert!(error.is_misconfigured() && !error.is_outage());
    /// assert_eq!(error.to_string(), "files backend is misconfigured: the folder is read-only");
    /// ```
    pub fn misconfigured(
        backend: &'static str,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self(Problem::Misconfigured { backend, cause: Arc::from(cause.into()) })
    }

    /// This error, inside a transaction of the application. An outage is none there: the server has
    /// aborted the transaction, so work that goes on cannot be committed.
    #[doc(hidden)]
    #[must_use]
    pub fn in_transaction(self) -> Self {
        let (backend, cause) = match self.0 {
            Problem::Unavailable { backend, cause } => (backend, Some(cause)),
            Problem::Timeout { backend, .. } | Problem::Locked { backend, .. } => (backend, None),
            other => return Self(other),
        };
        Self(Problem::InTransaction { backend, cause })
    }

    /// Whether it is a failure inside a transaction of the application.
    pub(crate) const fn is_in_transaction(&self) -> bool {
        matches!(self.0, Problem::InTransaction { .. })
    }

    /// A cluster keeps buckets of these limits in several slots, so it cannot charge them in one
    /// step.
    pub fn cross_slot(limits: impl Into<String>) -> Self {
        Self(Problem::CrossSlot { limits: limits.into() })
    }

    /// The store was not asked, because it has failed with the error `last` before. It will be asked
    /// again after `retry_after`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backend::BackendError;
    ///
    /// let last = BackendError::timeout("redis", Duration::from_millis(50));
    /// let open = BackendError::circuit_open(Duration::from_millis(400), last);
    /// assert!(open.is_outage() && open.is_circuit_open() && !open.is_timeout());
    /// assert_eq!(open.retry_after(), Some(Duration::from_millis(400)));
    /// ```
    #[must_use]
    pub fn circuit_open(retry_after: Duration, last: Self) -> Self {
        Self(Problem::CircuitOpen { retry_after, last: Arc::new(last) })
    }

    /// The store's answer does not have a reading for every charge.
    #[doc(hidden)]
    #[must_use]
    pub const fn incomplete() -> Self {
        Self(Problem::Incomplete)
    }

    /// Something happened that the code of this crate rules out.
    #[doc(hidden)]
    #[must_use]
    pub const fn internal(backend: &'static str, what: &'static str) -> Self {
        Self(Problem::Internal { backend, what })
    }

    /// Whether the call named buckets that a cluster keeps in several slots. A retry does not help.
    #[must_use]
    pub const fn is_cross_slot(&self) -> bool {
        matches!(self.0, Problem::CrossSlot { .. })
    }

    /// Whether a [`CircuitBreaker`](super::CircuitBreaker) did not ask the store. Nothing was taken.
    #[must_use]
    pub const fn is_circuit_open(&self) -> bool {
        matches!(self.0, Problem::CircuitOpen { .. })
    }

    /// When it is worth asking again, if that is known: when a circuit breaker will let calls
    /// through.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.0 {
            Problem::CircuitOpen { retry_after, .. } => Some(retry_after),
            _ => None,
        }
    }

    /// Whether there was no answer before the deadline. The store may have taken the tokens all the
    /// same.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        match self.0 {
            Problem::Timeout { .. } | Problem::Locked { .. } => true,
            Problem::InTransaction { cause: None, .. } => true,
            _ => self.is_overload(),
        }
    }

    /// Whether the store failed, could not be reached, did not answer in time, or was not asked for
    /// one of these reasons: what
    /// [`OnFailure::Admit`](crate::OnFailure::Admit) is for.
    ///
    /// False for a call that the store can never decide, for a store that [is full](Self::is_full),
    /// and for a call that was late [because of this process](Self::is_overload). A client can cause each
    /// of these by itself. Also false for a store
    /// that [is misconfigured](Self::is_misconfigured): admitting would lift all limits until an
    /// operator notices. False for a call whose buckets another transaction of PostgreSQL held
    /// locked: a client causes that by a request whose transaction decides. False as well for each
    /// failure inside a transaction of the application (`Postgres::in_transaction`): the
    /// transaction is aborted, so nothing can go on in it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backend::BackendError;
    ///
    /// assert!(BackendError::timeout("redis", Duration::from_millis(50)).is_outage());
    /// assert!(!BackendError::cross_slot("per-client`, `global").is_outage());
    /// ```
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        matches!(
            self.0,
            Problem::Unavailable { .. } | Problem::Timeout { .. } | Problem::CircuitOpen { .. }
        )
    }

    /// Whether the store had no room for what the call would store. It may still refuse other
    /// calls, as that stores nothing.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.0, Problem::Full { .. })
    }

    /// Whether an operator has to set up the store differently, or the limiter: its login, say, or
    /// the rights of its user.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        matches!(self.0, Problem::Misconfigured { .. })
    }

    /// The kind of the failure in one word, for labels: `"circuit_open"`, `"full"`,
    /// `"in_transaction"`, `"misconfigured"`, `"overload"`, `"timeout"`, `"unavailable"` or
    /// `"undecidable"`. The predicates say more.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.0 {
            Problem::Unavailable { .. } => "unavailable",
            Problem::Timeout { .. } | Problem::Locked { .. } => "timeout",
            Problem::CircuitOpen { .. } => "circuit_open",
            Problem::Full { .. } => "full",
            Problem::Misconfigured { .. } => "misconfigured",
            Problem::Overloaded { .. } | Problem::Contended { .. } => "overload",
            Problem::InTransaction { .. } => "in_transaction",
            Problem::Undecidable { .. }
            | Problem::CrossSlot { .. }
            | Problem::Incomplete
            | Problem::Internal { .. } => "undecidable",
        }
    }

    /// What the store failed with, for programs that look at it; `None` where nothing else failed.
    ///
    /// The message of this error ends with that of its cause, so [`source`](Error::source) is `None`:
    /// what prints an error with its sources would print the cause twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use tollgate::backend::BackendError;
    ///
    /// let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
    /// let error = BackendError::unavailable("files", refused);
    /// assert_eq!(error.to_string(), "files backend could not decide: connection refused");
    /// assert!(error.cause().is_some_and(|cause| cause.is::<io::Error>()));
    /// ```
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        match &self.0 {
            Problem::InTransaction { cause, .. } => cause.as_deref(),
            Problem::Unavailable { cause, .. }
            | Problem::Undecidable { cause, .. }
            | Problem::Full { cause, .. }
            | Problem::Misconfigured { cause, .. } => Some(&**cause),
            Problem::CircuitOpen { last, .. } => Some(&**last),
            Problem::Internal { .. } => None,
            Problem::Timeout { .. }
            | Problem::Overloaded { .. }
            | Problem::Locked { .. }
            | Problem::Contended { .. }
            | Problem::CrossSlot { .. }
            | Problem::Incomplete => None,
        }
    }

    /// Whether the call was late because of this process, which was busy or had too many calls to send,
    /// or because other calls changed its buckets each time that it tried to.
    #[must_use]
    pub const fn is_overload(&self) -> bool {
        matches!(self.0, Problem::Overloaded { .. } | Problem::Contended { .. })
    }
}

impl Error for BackendError {}

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
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
