//! Reservations whose answers are on their way.

use std::sync::Arc;

use super::registry::QueueRegistry;

/// A reservation that the store is asked for, until it is held or refused.
#[derive(Debug)]
pub(crate) struct PendingReservation(Arc<QueueRegistry>);

impl PendingReservation {
    pub(crate) fn new(registry: &Arc<QueueRegistry>) -> Self {
        registry.retention.begin();
        Self(Arc::clone(registry))
    }
}

impl Drop for PendingReservation {
    fn drop(&mut self) {
        self.0.retention.end().iter().for_each(|queue| self.0.forget(queue));
    }
}
