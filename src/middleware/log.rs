//! What the log says; nothing without the feature `tracing`.

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

/// The log of one rule. What meets every request is told once as an error, and then as detail: a
/// mistake in the set-up, and a store that fails until it [has recovered](ToldFailure::recovered).
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    told: Arc<Told>,
}

/// What has been logged. One kind does not use up the line of another: a client can leave a key out,
/// or send an empty one, at any time.
#[derive(Debug, Default)]
struct Told {
    misconfigured_key: AtomicBool,
    missing_key: AtomicBool,
    empty_key: AtomicBool,
    outage: ToldFailure,
    full: ToldFailure,
    misconfigured_store: ToldFailure,
    overload: AtomicBool,
    undecidable: AtomicBool,
    only_queues: AtomicBool,
}

impl Log {
    /// A request without a key was answered with this status, or went on without.
    pub(super) fn no_key(&self, limit: &Limit, error: &KeyError, status: Option<StatusCode>) {
        let told = match status {
            _ if error.is_misconfigured() => Some(&self.told.misconfigured_key),
            _ if error.is_empty() => Some(&self.told.empty_key),
            // As it was chosen.
            None => return,
            Some(status) if error.is_missing() && status.is_server_error() => {
                Some(&self.told.missing_key)
            }
            Some(_) => None,
        };
        let first = told.is_some_and(|told| !told.swap(true, Ordering::Relaxed));
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

    /// As [`no_key`](Self::no_key), where the request goes on.
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
        tracing::debug!(limit = error.limit().name(), %error, "would be refused whenever it comes");
    }

    pub(super) fn refused(&self, limit: &Limit, retry_after: Duration) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), ?retry_after, "refused");
    }

    pub(super) fn drained(&self, limit: &Limit) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), "not waited for, as the limiter is drained");
    }

    pub(super) fn too_large(&self, error: &RateLimited) {
        let first = error.only_queues() && !self.told.only_queues.swap(true, Ordering::Relaxed);
        #[cfg(feature = "tracing")]
        match (error.limit().name(), first) {
            (limit, true) => {
                tracing::warn!(limit, %error, "every request is refused (logged once)")
            }
            (limit, false) => tracing::debug!(limit, %error, "refused whenever it comes"),
        }
    }

    /// The store did not decide. What a client can bring about by itself is told once for all time, or
    /// it would fill the log; but for a full store, which an operator has to know about each time.
    pub(super) fn store_failed(&self, limit: &Limit, error: &BackendError, on_failure: OnFailure) {
        let told = &self.told;
        let (first, hint) = if error.is_outage() {
            (told.outage.failed(), "no decision (logged once until the backend recovers)")
        } else if error.is_full() {
            let hint = "the backend is full, and requests that it has no room for are not admitted \
                        (logged once until the backend recovers)";
            (told.full.failed(), hint)
        } else if error.is_misconfigured() {
            let hint = "the backend cannot be used as it is set up, and requests are not admitted \
                        (logged once until the backend recovers)";
            (told.misconfigured_store.failed(), hint)
        } else if error.is_overload() {
            let hint = "decisions are late before they are sent, and their requests are not admitted \
                        (logged once)";
            (!told.overload.swap(true, Ordering::Relaxed), hint)
        } else {
            let hint = "the backend can never decide such requests, and they are not admitted (logged \
                        once)";
            (!told.undecidable.swap(true, Ordering::Relaxed), hint)
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

    /// The store has taken tokens. A refusal does not say as much: a store that is full, or a replica,
    /// refuses and fails by turns.
    pub(super) fn store_took(&self, limit: &Limit) {
        let Told { outage, full, misconfigured_store, .. } = &*self.told;
        // Each of them, as several may have been told.
        let recovered = [outage, full, misconfigured_store].map(ToldFailure::recovered);
        if recovered.contains(&true) {
            #[cfg(feature = "tracing")]
            tracing::info!(limit = limit.name(), "backend recovered");
        }
    }
}

/// A failure of the store that is told once until the store has recovered.
#[derive(Debug, Default)]
struct ToldFailure {
    is_told: AtomicBool,
    last: Mutex<Option<Instant>>,
}

impl ToldFailure {
    /// Notes a failure. Returns whether it is to be told.
    fn failed(&self) -> bool {
        *self.last() = Some(Instant::now());
        !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// Notes a success. Returns whether the store has recovered: for a minute, nothing has failed. Of a
    /// cluster, one node may be down for an hour while the others answer, and each request would
    /// have a line otherwise.
    fn recovered(&self) -> bool {
        // The only thing that a store costs that is well.
        if !self.is_told.load(Ordering::Relaxed) {
            return false;
        }
        let is_quiet = self.last().is_none_or(|last| last.elapsed() >= QUIET);
        is_quiet && self.is_told.swap(false, Ordering::Relaxed)
    }

    /// A poisoned lock is harmless: nothing panics while it is held.
    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After which a store has recovered that has not failed: so the log gets two lines a minute at most.
const QUIET: Duration = Duration::from_secs(60);
