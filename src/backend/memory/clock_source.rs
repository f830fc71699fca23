//! The clock of a store.

use std::sync::Arc;

use crate::clock::{Clock, SystemClock, Timestamp};

/// The clock of a store. The usual one is called directly, not through a trait object.
#[derive(Clone, Debug)]
pub(super) enum ClockSource {
    System(SystemClock),
    Other(Arc<dyn Clock>),
}

/// A clock of the user, so many microseconds ahead.
#[derive(Debug)]
struct AheadClock {
    clock: Arc<dyn Clock>,
    ahead: u64,
}

impl ClockSource {
    #[inline(always)]
    pub(super) fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    /// The same clock, ahead by as much as it is behind `floor` now.
    pub(super) fn not_before(self, floor: Timestamp) -> Self {
        let behind = floor.micros_since(self.now());
        match self {
            clock if behind == 0 => clock,
            Self::System(clock) => Self::System(clock.ahead_by(behind)),
            Self::Other(clock) => Self::Other(Arc::new(AheadClock { clock, ahead: behind })),
        }
    }
}

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        self.clock.now().plus_micros(self.ahead)
    }
}
