//! Why a backend could not decide.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A backend could not decide; its cause, where known, is the [`source`](Error::source).
#[derive(Clone, Debug)]
pub struct BackendError {
    /// What kind of store it is, as in "redis".
    backend: &'static str,
    within: Option<Duration>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// The store failed or could not be reached.
    pub fn unavailable(
        backend: &'static str,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { backend, within: None, cause: Some(Arc::from(cause.into())) }
    }

    /// The store did not answer in time.
    #[must_use]
    pub const fn timeout(backend: &'static str, within: Duration) -> Self {
        Self { backend, within: Some(within), cause: None }
    }

    /// Whether the time was up: the decision may have been taken all the same.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        self.within.is_some()
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} backend could not decide", self.backend)?;
        match self.within {
            Some(within) => write!(f, " within {} ms", within.as_millis()),
            None => Ok(()),
        }
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| -> &(dyn Error + 'static) { cause })
    }
}
