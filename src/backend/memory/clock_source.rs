//! The clock of a store.

use std::sync::Arc;

use crate::clock::{Clock, SystemClock, Timestamp, not_before};

/// The clock of a store. The usual one is called directly, not through a trait object.
#[derive(Clone, Debug)]
pub(super) enum ClockSource {
    System(SystemClock),
    Other(Arc<dyn Clock>),
}

impl ClockSource {
    #[inline(always)]
    pub(super) fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    /// The same clock, but no earlier than `floor` and the time that passes from now on.
    pub(super) fn not_before(self, floor: Timestamp) -> Self {
        match self {
            Self::System(clock) if clock.now() >= floor => self,
            Self::System(clock) => Self::Other(not_before(Arc::new(clock), floor)),
            Self::Other(clock) => Self::Other(not_before(clock, floor)),
        }
    }
}
