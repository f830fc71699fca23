//! The lines of the log; none without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;

use crate::key::KeyError;
use crate::limiter::{Limit, RateLimited};

/// The log of requests to which one rule finds no key.
///
/// A misconfiguration affects every request. It is logged once as an error, and then at debug level.
/// Failures of the store are in the log of the limiter.
///
/// Which kinds of lines have been logged has a flag for each kind: a client can leave a key out at any
/// time, and must not suppress another line by that.
#[derive(Debug, Default)]
pub(super) struct Log {
    misconfigured_key: AtomicBool,
    missing_key: AtomicBool,
    empty_key: AtomicBool,
    has_chosen: AtomicBool,
    unchosen: AtomicU32,
}

impl Log {
    /// The function of `limit_with` has chosen a limit, or none. Returns whether it has chosen none for so
    /// many requests that it may ask for what no layer has inserted.
    pub(super) fn never_chooses(&self, has_chosen: bool) -> bool {
        let has_ever = self.has_chosen.load(Ordering::Relaxed);
        if has_chosen && !has_ever {
            self.has_chosen.store(true, Ordering::Relaxed);
        }
        // Of so many, one should have had a limit.
        !has_chosen && !has_ever && self.unchosen.fetch_add(1, Ordering::Relaxed) == 999
    }

    /// A request without a usable key was answered with this status; `None` if it passes.
    ///
    /// `is_chosen`: the configuration says what becomes of such requests.
    pub(super) fn no_key(
        &self,
        limit: &Limit,
        error: &KeyError,
        status: Option<StatusCode>,
        is_chosen: bool,
    ) {
        let flag = match status {
            _ if error.is_misconfigured() => Some(&self.misconfigured_key),
            _ if error.is_empty() => Some(&self.empty_key),
            // Intended: the configuration lets such requests pass.
            None => return,
            // Perhaps no request has the key, and nobody has chosen this answer.
            Some(status) if error.is_missing() && (status.is_server_error() || !is_chosen) => {
                Some(&self.missing_key)
            }
            Some(_) => None,
        };
        let first = flag.is_some_and(|flag| !flag.swap(true, Ordering::Relaxed));
        #[cfg(feature = "tracing")]
        {
            let (limit, status) = (limit.name(), status.map(|status| status.as_u16()));
            match first {
                true if error.is_empty() => {
                    let hint = match status {
                        Some(_) => "empty keys are answered with this status (logged once)",
                        None => "empty keys pass without being charged (logged once)",
                    };
                    tracing::warn!(limit, status, %error, "{hint}");
                }
                true if status.is_none() => {
                    let hint = "no request has a key of its own for this limit (logged once)";
                    tracing::error!(limit, %error, "{hint}");
                }
                true => {
                    let hint = "requests without a key are answered with this status (logged once)";
                    match status.is_some_and(|status| status < 500) && !error.is_misconfigured() {
                        true => tracing::warn!(limit, status, %error, "{hint}"),
                        false => tracing::error!(limit, status, %error, "{hint}"),
                    }
                }
                false => tracing::debug!(limit, status, %error, "no key"),
            }
        }
    }
}

/// A request without a usable key passes a shadow; it would be answered with this status.
pub(super) fn log_no_key_in_shadow(limit: &Limit, error: &KeyError, status: StatusCode) {
    #[cfg(feature = "tracing")]
    tracing::debug!(limit = limit.name(), status = status.as_u16(), %error, "would have no key");
}

/// Limits have refused a request. `lacks_key`: whether the log is still to say that no rule of the layer
/// was given a key.
pub(super) fn log_refused(lacks_key: &AtomicBool, limit: &Limit, retry_after: Option<Duration>) {
    log_refusal(limit, retry_after, "");
    // All clients share one bucket if the rule has no key, which shows at the first refusal.
    // The load alone for nearly all, as a swap would write what all threads read.
    #[cfg(feature = "tracing")]
    if lacks_key.load(Ordering::Relaxed) && lacks_key.swap(false, Ordering::Relaxed) {
        tracing::warn!(
            limit = limit.name(),
            warning = "the layer has no key, so all requests share one bucket, and one client \
                       can have the others refused (give it one, such as \
                       `.key(ClientIp::peer())`; if it is meant, say \
                       `.key(tollgate::key::global())`)",
            "possible misconfiguration (logged once)"
        );
    }
}

pub(super) fn log_drained(limit: &Limit) {
    #[cfg(feature = "tracing")]
    tracing::debug!(limit = limit.name(), "rejected, as the limiter is drained");
}

/// What a line about a shadow begins with.
pub(super) const WOULD_BE: &str = "would be ";

pub(super) fn log_refusal(limit: &Limit, retry_after: Option<Duration>, would_be: &str) {
    #[cfg(feature = "tracing")]
    let retry_after = retry_after.map(tracing::field::debug);
    #[cfg(feature = "tracing")]
    tracing::debug!(limit = limit.name(), retry_after, "{would_be}refused");
}

/// The store was not asked: the cost can never fit, or the limit grants nothing.
pub(super) fn log_unasked(error: &RateLimited, would_be: &str) {
    let what = if error.is_refused() { "refused" } else { "too large" };
    #[cfg(feature = "tracing")]
    tracing::debug!(limit = error.limit().name(), %error, "{would_be}{what}");
}
