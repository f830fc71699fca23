//! Instants of this process, as small as they can be kept.

use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds since the limiter was made, or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(i64);

impl Moment {
    pub(super) fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

/// The instant from which moments are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch(Instant);

impl Epoch {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Moment {
        self.moment(Instant::now())
    }

    pub(super) fn moment(self, at: Instant) -> Moment {
        // The clock of a test may show less than when the limiter was made.
        match at.checked_duration_since(self.0) {
            Some(after) => Moment(nanos(after)),
            None => Moment(0_i64.saturating_sub(nanos(self.0.saturating_duration_since(at)))),
        }
    }

    pub(super) fn instant(self, at: Moment) -> Instant {
        let distance = Duration::from_nanos(at.0.unsigned_abs());
        let instant =
            if at.0 < 0 { self.0.checked_sub(distance) } else { self.0.checked_add(distance) };
        instant.unwrap_or(self.0)
    }
}

/// Some years are as good as for ever.
const FOR_EVER: i64 = 30 * 365 * 86_400 * 1_000_000_000;

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).map_or(FOR_EVER, |nanos| nanos.min(FOR_EVER))
}
