//! Reservations that the store was asked for and has not answered.

use std::sync::Arc;

use super::registry::QueueRegistry;

/// A guard for a reservation that the store was asked for, until its slot is held or refused.
///
/// While there is one, queues without waiters keep their free slots: see
/// [`QueueRetention`](super::queue_retention::QueueRetention).
#[derive(Debug)]
pub(crate) struct PendingReservation(Arc<QueueRegistry>);

impl PendingReservation {
    pub(crate) fn new(registry: &Arc<QueueRegistry>) -> Self {
        // Before the store is asked. A slot that is refused because the store has charged for this
        // reservation already then finds it pending.
        registry.retention.begin();
        Self(Arc::clone(registry))
    }
}

impl Drop for PendingReservation {
    fn drop(&mut self) {
        // Not all of these are forgotten: a queue that has a waiter again stays.
        self.0.retention.end().iter().for_each(|queue| self.0.forget(queue));
    }
}
