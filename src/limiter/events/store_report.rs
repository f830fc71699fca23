//! Tells observers how the store is.

use std::time::Duration;

use super::observers::Observers;
use super::store_health::{StoreAnswer, StoreFailure, StoreRecovery};
use crate::backend::{BackendError, OnFailure};
use crate::limiter::Limit;
use crate::limiter::failure_log::{Meanwhile, Standing};

/// Tells that the store has answered after so long.
pub(crate) fn tell_answer(observers: &Observers, took: Duration, error: Option<&BackendError>) {
    let answer = StoreAnswer { took, error };
    observers.tell(|observer| observer.on_store_answer(&answer));
}

/// Tells that the store did not decide.
pub(in crate::limiter) fn tell_failure(
    observers: &Observers,
    limit: &Limit,
    error: &BackendError,
    on_failure: Option<OnFailure>,
    standing: Standing,
) {
    let failure = StoreFailure { limit, error, on_failure, standing };
    observers.tell(|observer| observer.on_store_failure(&failure));
}

/// Tells that the store has recovered.
pub(in crate::limiter) fn tell_recovery(
    observers: &Observers,
    limit: &Limit,
    meanwhile: Meanwhile,
) {
    let recovery = StoreRecovery { limit, meanwhile };
    observers.tell(|observer| observer.on_store_recovery(&recovery));
}
