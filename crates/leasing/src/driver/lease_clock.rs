//! The clock of a node, by which its lots become void.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::clock::{Clock, SystemClock, Timestamp};

/// A clock that also runs while the machine is suspended.
///
/// The system's monotonic clock stands still then, and lots would outlive their date. So once in a
/// millisecond it is compared with the time of day. If that has run ahead, so does this clock. If
/// the time of day is set forward, lots only become void early.
#[derive(Debug)]
pub(super) struct LeaseClock {
    source: LeaseClockSource,
    /// When the two were compared, by the monotonic clock.
    compared: AtomicI64,
    /// The time of day less the monotonic clock, then.
    distance: AtomicI64,
    /// What the monotonic clock has missed so far.
    missed: AtomicI64,
}

#[derive(Debug)]
enum LeaseClockSource {
    System(SystemClock),
    Other(Arc<dyn Clock>),
}

/// How often the clocks are compared, in microseconds.
const EVERY: i64 = 1_000;

/// A smaller step of the time of day is no suspension.
const SMALLEST_STEP: i64 = 20_000;

impl LeaseClock {
    pub(super) fn system() -> Self {
        let clock = SystemClock::new();
        let now = clock.monotonic().as_micros();
        let distance = AtomicI64::new(time_of_day().saturating_sub(now));
        let (compared, missed) = (AtomicI64::new(now), AtomicI64::new(0));
        Self { source: LeaseClockSource::System(clock), compared, distance, missed }
    }

    pub(super) fn other(clock: Arc<dyn Clock>) -> Self {
        let [compared, distance, missed] = [0; 3].map(AtomicI64::new);
        Self { source: LeaseClockSource::Other(clock), compared, distance, missed }
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        match &self.source {
            LeaseClockSource::Other(clock) => clock.now(),
            LeaseClockSource::System(clock) => {
                let now = clock.monotonic().as_micros();
                if now.saturating_sub(self.compared.load(Ordering::Relaxed)) > EVERY {
                    self.compare(now, time_of_day());
                }
                let missed = self.missed.load(Ordering::Relaxed);
                Timestamp::from_micros(now.saturating_add(missed))
            }
        }
    }

    /// Adds what the monotonic clock has missed. If threads compare at the same time, they see the
    /// same step, and one of them adds it.
    #[cold]
    fn compare(&self, now: i64, time_of_day: i64) {
        self.compared.store(now, Ordering::Relaxed);
        let distance = time_of_day.saturating_sub(now);
        let before = self.distance.load(Ordering::Relaxed);
        let swapped =
            self.distance.compare_exchange(before, distance, Ordering::Relaxed, Ordering::Relaxed);
        let step = distance.saturating_sub(before);
        if swapped.is_ok() && step >= SMALLEST_STEP {
            self.missed.fetch_add(step, Ordering::Relaxed);
        }
    }
}

fn time_of_day() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a suspension looks like: the time of day has run on, the monotonic clock has not.
    #[test]
    fn time_in_suspension_counts() {
        let clock = LeaseClock::system();
        let now = clock.compared.load(Ordering::Relaxed);
        let day = now + clock.distance.load(Ordering::Relaxed);
        for (passed, at_day, missed) in [
            (1_000, day + 1_500, 0),
            (2_000, day + 60_002_000, 60_000_500 - 500 - 500),
            // Set back, and suspended again.
            (3_000, day - 3_600_000_000, 59_999_500),
            (4_000, day - 3_500_000_000, 59_999_500 + 99_999_000),
        ] {
            clock.compare(now + passed, at_day);
            let found = clock.missed.load(Ordering::Relaxed);
            assert_eq!(found, missed, "after {passed}");
        }
    }
}
