//! Reservations whose answers are on their way.

use std::sync::Arc;

use super::registry::QueueRegistry;

/// A reservation that the store is asked for, until it is held or refused.
#[derive(Debug)]
pub(crate) struct ReservationUnderWay(Arc<QueueRegistry>);

impl ReservationUnderWay {
    pub(crate) fn new(registry: &Arc<QueueRegistry>) -> Self {
        registry.lingering.begin();
        Self(Arc::clone(registry))
    }
}

impl Drop for ReservationUnderWay {
    fn drop(&mut self) {
        self.0.lingering.end().iter().for_each(|queue| self.0.forget(queue));
    }
}
