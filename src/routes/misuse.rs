//! The response to a handler that takes something that no layer around its route provides.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;

use crate::fields::{self, RetryHint, Wording};

/// Logs a misconfigured route once as an error: every request for the route fails, and must not
/// fill the log.
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "the log alone says why"))]
pub(super) struct Misuse {
    /// What is missing, and the way out.
    error: &'static str,
    #[cfg(feature = "tracing")]
    is_logged: AtomicBool,
}

impl Misuse {
    pub(super) const fn new(error: &'static str) -> Self {
        Self {
            error,
            #[cfg(feature = "tracing")]
            is_logged: AtomicBool::new(false),
        }
    }

    /// Responds with 500 and no details. The log says how to fix the route, once as an error, and
    /// then at debug level.
    #[cfg_attr(not(feature = "tracing"), allow(clippy::unused_self))]
    pub(super) fn response(&self) -> Response {
        #[cfg(feature = "tracing")]
        match self.is_logged.swap(true, Ordering::Relaxed) {
            false => tracing::error!("{} (logged once)", self.error),
            true => tracing::debug!("{}", self.error),
        }
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        fields::failure(Wording::ProblemDetails, status, None, RetryHint::SOON).map(Body::from)
    }
}
