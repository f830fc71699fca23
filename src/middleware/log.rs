//! The lines of the log; none without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::OnFailure;
use crate::backend::BackendError;
use crate::key::KeyError;
use crate::limiter::{Limit, RateLimited};

/// The log of one rule.
///
/// A misconfiguration or a failed store affects every request. It is logged once as an error, and
/// then at debug level, a failure until the store [has recovered](FailureLog::record_success).
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    state: Arc<LogState>,
}

/// Which kinds of lines have been logged. Each kind has a flag of its own: a client can leave a key
/// out at any time, and must not suppress another line by that.
#[derive(Debug, Default)]
struct LogState {
    misconfigured_key: AtomicBool,
    missing_key: AtomicBool,
    empty_key: AtomicBool,
    outage: FailureLog,
    full: FailureLog,
    misconfigured_store: FailureLog,
    overload: AtomicBool,
    undecidable: AtomicBool,
    only_queues: AtomicBool,
}

impl Log {
    /// A request without a usable key was answered with this status; `None` if it passes.
    pub(super) fn no_key(&self, limit: &Limit, error: &KeyError, status: Option<StatusCode>) {
        let flag = match status {
            _ if error.is_misconfigured() => Some(&self.state.misconfigured_key),
            _ if error.is_empty() => Some(&self.state.empty_key),
            // Intended: the configuration lets such requests pass.
            None => return,
            Some(status) if error.is_missing() && status.is_server_error() => {
                Some(&self.state.missing_key)
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
                    tracing::error!(limit, status, %error, "{hint}");
                }
                false => tracing::debug!(limit, status, %error, "no key"),
            }
        }
    }

    /// A request without a usable key passes a shadow; it would be answered with this status.
    pub(super) fn no_key_in_shadow(&self, limit: &Limit, error: &KeyError, status: StatusCode) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), status = status.as_u16(), %error, "would have no key");
    }

    pub(super) fn would_refuse(&self, limit: &Limit, retry_after: Duration) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), ?retry_after, "would be refused");
    }

    pub(super) fn would_be_too_large(&self, error: &RateLimited) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = error.limit().name(), %error, "would be too large");
    }

    pub(super) fn refused(&self, limit: &Limit, retry_after: Duration) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), ?retry_after, "refused");
    }

    pub(super) fn drained(&self, limit: &Limit) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), "rejected, as the limiter is drained");
    }

    pub(super) fn too_large(&self, error: &RateLimited) {
        let first = error.only_queues() && !self.state.only_queues.swap(true, Ordering::Relaxed);
        #[cfg(feature = "tracing")]
        match (error.limit().name(), first) {
            (limit, true) => {
                tracing::warn!(limit, %error, "every request is refused (logged once)")
            }
            (limit, false) => tracing::debug!(limit, %error, "too large"),
        }
    }

    /// The store did not decide.
    ///
    /// A failure that clients can cause is logged once in the life of the process, or they could
    /// fill the log. The exception is a full store, which an operator has to know about each time.
    pub(super) fn store_failed(&self, limit: &Limit, error: &BackendError, on_failure: OnFailure) {
        let state = &self.state;
        let (first, hint) = if error.is_outage() {
            (state.outage.record_failure(), "no decision (logged once until the backend recovers)")
        } else if error.is_full() {
            let hint = "the backend is full, and requests that it has no room for are not admitted \
                        (logged once until the backend recovers)";
            (state.full.record_failure(), hint)
        } else if error.is_misconfigured() {
            let hint = "the backend is misconfigured, and requests are not admitted \
                        (logged once until the backend recovers)";
            (state.misconfigured_store.record_failure(), hint)
        } else if error.is_overload() {
            let hint = "decisions miss their deadline before they are sent, and their requests are \
                        not admitted (logged once)";
            (!state.overload.swap(true, Ordering::Relaxed), hint)
        } else {
            let hint = "the backend can never decide such requests, and they are not admitted \
                        (logged once)";
            (!state.undecidable.swap(true, Ordering::Relaxed), hint)
        };
        #[cfg(feature = "tracing")]
        {
            let error: &(dyn std::error::Error + 'static) = error;
            if first {
                tracing::error!(limit = limit.name(), ?on_failure, error, "{hint}");
            } else {
                tracing::debug!(limit = limit.name(), ?on_failure, error, "no decision");
            }
        }
    }

    /// The store has taken tokens, so it works. A refusal proves less: a store that is full, or a
    /// replica, alternates between refusals and failures.
    pub(super) fn store_charged(&self, limit: &Limit) {
        let LogState { outage, full, misconfigured_store, .. } = &*self.state;
        // Without short-circuit: several failures may have been logged.
        let recovered = [outage, full, misconfigured_store].map(FailureLog::record_success);
        if recovered.contains(&true) {
            #[cfg(feature = "tracing")]
            tracing::info!(limit = limit.name(), "backend recovered");
        }
    }
}

/// A failure of the store that is logged once until the store has recovered.
#[derive(Debug, Default)]
struct FailureLog {
    is_logged: AtomicBool,
    last: Mutex<Option<Instant>>,
}

impl FailureLog {
    /// Records a failure. Returns whether it is to be logged as an error.
    fn record_failure(&self) -> bool {
        *self.last() = Some(Instant::now());
        !self.is_logged.swap(true, Ordering::Relaxed)
    }

    /// Records a success. Returns whether the store has recovered, that is, whether nothing has
    /// failed for a minute. In a cluster, one node may be down for an hour while the others answer:
    /// without the minute, each request would be logged.
    fn record_success(&self) -> bool {
        // The fast path: while the store works, this load is the only cost.
        if !self.is_logged.load(Ordering::Relaxed) {
            return false;
        }
        let is_quiet = self.last().is_none_or(|last| last.elapsed() >= QUIET);
        is_quiet && self.is_logged.swap(false, Ordering::Relaxed)
    }

    /// A poisoned lock is harmless: nothing panics while it is held.
    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store that has not failed for this long has recovered. So the log gets at most two lines a
/// minute.
const QUIET: Duration = Duration::from_secs(60);
