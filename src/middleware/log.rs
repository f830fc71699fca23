//! What the log says; nothing without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::StatusCode;

use super::OnFailure;
use crate::backend::BackendError;
use crate::key::KeyError;
use crate::limiter::{Error, Limit};

/// The log of one rule. What meets every request is told once as an error, and then as detail: a
/// mistake in the set-up, and a store that fails until it answers again.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    key_was_missing: Arc<AtomicBool>,
    is_blind: Arc<AtomicBool>,
}

impl Log {
    pub(super) fn no_key(&self, limit: &Limit, error: &KeyError, status: StatusCode) {
        let set_up = error.is_missing() && status.is_server_error();
        let first = set_up && !self.key_was_missing.swap(true, Ordering::Relaxed);
        #[cfg(feature = "tracing")]
        if first {
            let hint = "requests without a key are answered with this status; said once";
            tracing::error!(limit = limit.name(), status = status.as_u16(), %error, "{hint}");
        } else {
            tracing::debug!(limit = limit.name(), status = status.as_u16(), %error, "no key");
        }
    }

    pub(super) fn refused(&self, limit: &Limit, retry_after: Duration) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), ?retry_after, "refused");
    }

    pub(super) fn sent_away(&self, limit: &Limit) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = limit.name(), "not waited for, as the limiter is drained");
    }

    pub(super) fn too_large(&self, error: &Error) {
        #[cfg(feature = "tracing")]
        tracing::debug!(limit = error.limit().name(), %error, "refused for ever");
    }

    pub(super) fn blind(&self, limit: &Limit, error: &BackendError, on_failure: OnFailure) {
        let first = !self.is_blind.swap(true, Ordering::Relaxed);
        #[cfg(feature = "tracing")]
        {
            let error: &(dyn std::error::Error + 'static) = error;
            if first {
                let hint = "no decision; said once, until there is one again";
                tracing::error!(limit = limit.name(), ?on_failure, error, "{hint}");
            } else {
                tracing::debug!(limit = limit.name(), ?on_failure, error, "no decision");
            }
        }
    }

    /// The store has answered.
    pub(super) fn sees(&self, limit: &Limit) {
        if self.is_blind.load(Ordering::Relaxed) && self.is_blind.swap(false, Ordering::Relaxed) {
            #[cfg(feature = "tracing")]
            tracing::info!(limit = limit.name(), "decisions again");
        }
    }
}
