//! Tells observers how the store is.

use std::time::Duration;

use super::observers::Observers;
use super::store_health::{StoreAnswer, StoreFailure};
use crate::backend::{BackendError, OnFailure};
use crate::limiter::Limit;

/// Tells that the store has answered after so long.
pub(crate) fn tell_answer(observers: &Observers, took: Duration, error: Option<&BackendError>) {
    let answer = StoreAnswer { took, error };
    observers.tell(|observer| observer.on_store_answer(&answer));
}

/// Tells that the store did not decide.
pub(crate) fn tell_failure(
    observers: &Observers,
    limit: &Limit,
    error: &BackendError,
    on_failure: OnFailure,
) {
    let failure = StoreFailure { limit, error, on_failure };
    observers.tell(|observer| observer.on_store_failure(&failure));
}

/// Tells that the store has recovered.
pub(crate) fn tell_recovery(observers: &Observers, limit: &Limit) {
    observers.tell(|observer| observer.on_store_recovery(limit));
}
