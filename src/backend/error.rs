//! The error of a backend.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a backend could not decide. The cause, where known, is the [`source`](Error::source).
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
pub struct BackendError(Problem);

/// `backend` is what kind of store it is, as in "redis".
#[derive(Clone, Debug)]
enum Problem {
    Unavailable {
        backend: &'static str,
        cause: Arc<dyn Error + Send + Sync>,
    },
    Timeout {
        backend: &'static str,
        within: Duration,
    },
    #[cfg(feature = "redis")]
    Misconfigured {
        backend: &'static str,
        cause: Arc<dyn Error + Send + Sync>,
    },
    CrossSlot {
        limits: String,
    },
    Incomplete,
    #[cfg(feature = "redis")]
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

    /// The store cannot be used as it was set up.
    #[cfg(feature = "redis")]
    pub(crate) fn misconfigured(
        backend: &'static str,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self(Problem::Misconfigured { backend, cause: Arc::from(cause.into()) })
    }

    /// A cluster keeps buckets of these limits in several slots, so it cannot decide them in one step.
    pub fn cross_slot(limits: impl Into<String>) -> Self {
        Self(Problem::CrossSlot { limits: limits.into() })
    }

    /// The store answered, but not about every charge.
    pub(crate) const fn incomplete() -> Self {
        Self(Problem::Incomplete)
    }

    /// Something happened that the code of this crate rules out.
    #[cfg(feature = "redis")]
    pub(crate) const fn internal(backend: &'static str, what: &'static str) -> Self {
        Self(Problem::Internal { backend, what })
    }

    /// Whether the call named buckets that a cluster keeps in several slots. Trying again does not
    /// help.
    #[must_use]
    pub const fn is_cross_slot(&self) -> bool {
        matches!(self.0, Problem::CrossSlot { .. })
    }

    /// Whether the store did not answer in time. It may have taken the tokens all the same.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self.0, Problem::Timeout { .. })
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Problem::Unavailable { backend, .. } => write!(f, "{backend} backend could not decide"),
            Problem::Timeout { backend, within } => {
                write!(f, "{backend} backend could not decide within ")?;
                match (within.as_millis(), within.as_micros().checked_rem(1_000)) {
                    (millis, Some(0)) => write!(f, "{millis} ms"),
                    _ => write!(f, "{within:?}"),
                }
            }
            Problem::CrossSlot { limits } => write!(
                f,
                "buckets of `{limits}` are in several slots of the cluster, and cannot be charged in one step \
                 (connect with `HashTag::FirstPart` and begin their keys with the same part, or with \
                 `HashTag::Fixed`)"
            ),
            #[cfg(feature = "redis")]
            Problem::Misconfigured { backend, .. } => {
                write!(f, "{backend} backend is misconfigured")
            }
            Problem::Incomplete => f.write_str("the backend left a charge out of its answer"),
            #[cfg(feature = "redis")]
            Problem::Internal { backend, what } => {
                write!(f, "{backend} backend has a bug: {what} (please report this)")
            }
        }
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Problem::Unavailable { cause, .. } => Some(&**cause),
            #[cfg(feature = "redis")]
            Problem::Misconfigured { cause, .. } => Some(&**cause),
            #[cfg(feature = "redis")]
            Problem::Internal { .. } => None,
            Problem::Timeout { .. } | Problem::CrossSlot { .. } | Problem::Incomplete => None,
        }
    }
}
