//! The place of a call in a circuit breaker, which is given back when the call is dropped.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::circuit::{CallEnd, Circuit, CircuitState};
use crate::backend::error::BackendError;
use crate::clock::Clock;

/// A circuit breaker that its calls share.
#[derive(Debug)]
pub(super) struct SharedCircuit {
    circuit: Mutex<Circuit>,
    clock: Arc<dyn Clock>,
}

impl SharedCircuit {
    pub(super) fn new(circuit: Circuit, clock: Arc<dyn Clock>) -> Self {
        Self { circuit: Mutex::new(circuit), clock }
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(super) fn state(&self) -> CircuitState {
        self.circuit().state(self.clock.monotonic())
    }

    /// The error of a call that only a closed breaker lets through; `None` if it is closed.
    pub(super) fn open_error(&self) -> Option<BackendError> {
        self.circuit().open_error(self.clock.monotonic())
    }

    /// Lets a call through.
    ///
    /// # Errors
    ///
    /// If it must not ask the store now.
    pub(super) fn enter(this: &Arc<Self>) -> Result<Pass, BackendError> {
        let round = this.circuit().enter(this.clock.monotonic())?;
        Ok(Pass { circuit: Arc::clone(this), round, end: CallEnd::Unknown })
    }

    /// A poisoned lock is harmless: nothing panics while it is held.
    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that was let through. If it is dropped before its [end](Self::end), its future was
/// dropped, and the call tells nothing about the store.
#[derive(Debug)]
pub(super) struct Pass {
    circuit: Arc<SharedCircuit>,
    round: u64,
    end: CallEnd,
}

impl Pass {
    /// The store has answered, or has failed with this error.
    pub(super) fn end(mut self, error: Option<&BackendError>) {
        self.end = CallEnd::of(error);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let end = mem::replace(&mut self.end, CallEnd::Unknown);
        let now = self.circuit.clock.monotonic();
        self.circuit.circuit().leave(self.round, end, now);
    }
}
