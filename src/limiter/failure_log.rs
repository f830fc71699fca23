//! The lines of the log about a store that fails; none without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Limit;
use crate::backend::{BackendError, OnFailure};

/// The failures of the store of a limiter, for its calls and its layers together.
///
/// A store that fails affects every request. Each kind of failure is logged once as an error, and
/// then at debug level until the store [has recovered](FailureState::record_success).
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    /// An outage while requests are refused for it.
    outage: FailureState,
    /// An outage while requests of other limits, or layers, pass for it: an operator has to know
    /// of both.
    open_outage: FailureState,
    /// An outage that left a look, a settlement or a change by an operator without an answer. It says
    /// nothing about requests, for which a fallback may decide.
    call_outage: FailureState,
    full: FailureState,
    misconfigured_store: FailureState,
    overload: AtomicBool,
    locked: AtomicBool,
    undecidable: AtomicBool,
    /// How many requests passed uncounted.
    uncounted: AtomicU64,
}

impl FailureLog {
    /// The store did not decide.
    ///
    /// A failure that clients can cause is logged once in the life of the process, or they could
    /// fill the log. The exception is a full store, which an operator has to know about each time.
    pub(crate) fn store_failed(&self, limit: &Limit, error: &BackendError, on_failure: OnFailure) {
        let state = self;
        let (first, hint) = if error.is_outage() {
            match on_failure {
                OnFailure::Refuse => (
                    state.outage.record_failure(),
                    "no decision, and requests are not admitted \
                     (logged once until the backend recovers)",
                ),
                OnFailure::Admit => (
                    state.record_uncounted(),
                    "no decision, and requests of limits with `OnFailure::Admit` pass uncounted \
                     (logged once until the backend recovers)",
                ),
            }
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
        } else if error.is_in_transaction() {
            // Each transaction has a limiter of its own, so each would be the first.
            (false, "no decision in a transaction, which has to be rolled back")
        } else if error.is_timeout() {
            let hint = "decisions wait for locks until their deadline, and their requests are not \
                        admitted (logged once)";
            (!state.locked.swap(true, Ordering::Relaxed), hint)
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

    /// The store did not answer a call that decides about no request.
    pub(crate) fn call_failed(&self, limit: &Limit, error: &BackendError) {
        if !error.is_outage() {
            return self.store_failed(limit, error, OnFailure::Refuse);
        }
        let is_known = [&self.outage, &self.open_outage]
            .into_iter()
            .any(|state| state.is_logged.load(Ordering::Relaxed));
        let first = self.call_outage.record_failure() && !is_known;
        #[cfg(feature = "tracing")]
        {
            let error: &(dyn std::error::Error + 'static) = error;
            if first {
                let hint = "no answer to a call that looks, settles, resets, penalizes or blocks \
                            (logged once until the backend recovers)";
                tracing::error!(limit = limit.name(), error, "{hint}");
            } else {
                tracing::debug!(limit = limit.name(), error, "no answer");
            }
        }
    }

    fn record_uncounted(&self) -> bool {
        self.uncounted.fetch_add(1, Ordering::Relaxed);
        self.open_outage.record_failure()
    }

    /// How many requests passed uncounted so far.
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// Whether a failure was logged, and no recovery since. While the store works, these loads are
    /// the only cost of a decision.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        let Self { outage, open_outage, call_outage, full, misconfigured_store, .. } = self;
        let states = [outage, open_outage, call_outage, full, misconfigured_store];
        states.iter().any(|state| state.is_logged.load(Ordering::Relaxed))
    }

    /// Records that the store has charged a limit. Returns whether it has recovered by that.
    #[cold]
    pub(crate) fn record_charge(&self, limit: &Limit) -> bool {
        let Self { outage, open_outage, call_outage, full, misconfigured_store, .. } = self;
        let states = [outage, open_outage, call_outage, full, misconfigured_store];
        // Without short-circuit: several failures may have been logged.
        let recovered = states.map(FailureState::record_success);
        if !recovered.contains(&true) {
            return false;
        }
        #[cfg(feature = "tracing")]
        tracing::info!(
            limit = limit.name(),
            passed_uncounted = self.uncounted(),
            "backend recovered"
        );
        true
    }
}

/// A failure of the store that is logged once until the store has recovered.
#[derive(Debug, Default)]
struct FailureState {
    is_logged: AtomicBool,
    last: Mutex<Option<Instant>>,
}

impl FailureState {
    /// Records a failure. Returns whether it is to be logged as an error.
    fn record_failure(&self) -> bool {
        *self.last() = Some(Instant::now());
        !self.is_logged.swap(true, Ordering::Relaxed)
    }

    /// Records a success. Returns whether the store has recovered, that is, whether nothing has
    /// failed for a minute. In a cluster, one node may be down for an hour while the others answer:
    /// without the minute, each request would be logged.
    fn record_success(&self) -> bool {
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
