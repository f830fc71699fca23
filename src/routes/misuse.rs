//! The answer where a handler asks for what no layer around its route has put into the request.

use std::fmt;
#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;

use crate::fields::{self, RetryAfter, Wording};

/// Whether the log has been told: every request for such a route meets it, which must not fill the
/// log.
pub(super) struct Misuse {
    #[cfg(feature = "tracing")]
    is_told: AtomicBool,
}

impl Misuse {
    pub(super) const fn new() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            is_told: AtomicBool::new(false),
        }
    }

    /// 500, which tells the client nothing of that; the log says how to mend it, once as an error,
    /// and then as detail.
    #[cfg_attr(not(feature = "tracing"), allow(unused_variables, clippy::unused_self))]
    pub(super) fn response(&self, error: &dyn fmt::Display) -> Response {
        #[cfg(feature = "tracing")]
        match self.is_told.swap(true, Ordering::Relaxed) {
            false => tracing::error!("{error} (logged once)"),
            true => tracing::debug!("{error}"),
        }
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        fields::failure(Wording::ProblemDetails, status, None, RetryAfter::Seconds).map(Body::from)
    }
}
