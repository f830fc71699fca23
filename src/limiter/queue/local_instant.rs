//! Instants of this process in eight bytes, and their relation to the clock of the store.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Timestamp;

/// Nanoseconds from the creation of the limiter; negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LocalInstant(i64);

impl LocalInstant {
    /// The time from `earlier` to this; zero if `earlier` is later.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub(super) fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

/// The offset between the clock of this process and that of the store.
///
/// An answer arrives some time after the store has read its clock. So each answer shows an offset
/// that is too large by the delay of that answer, and the smallest offset is the best. For example,
/// if answers show 7.2 s, 7.05 s and 7.4 s, the offset is 7.05 s or a little less.
///
/// All slots of a queue are converted by the same offset. So they keep the order in which the store
/// granted them, whatever the delays were, and no waiter runs early.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    /// The smallest offset of the current window in nanoseconds with the start of that window, and
    /// the smallest one of the window before.
    recent: Option<(i128, LocalInstant)>,
    before: Option<i128>,
}

/// The length of a window. Older offsets are dropped, since the two clocks may run at different
/// speeds.
const OFFSET_WINDOW: Duration = Duration::from_secs(30);

impl StoreClock {
    /// Records that this process received `shown`, a time of the store's clock, at `heard`.
    pub(super) fn observe(&mut self, shown: Timestamp, heard: LocalInstant) {
        // 128 bits, as the microseconds of a `Timestamp` fill 64 of them: a thousand times as many
        // nanoseconds do not fit.
        let ahead = i128::from(heard.0).saturating_sub(nanos_of(shown));
        self.recent = match self.recent {
            Some((least, since)) if heard < since.plus(OFFSET_WINDOW) => {
                Some((least.min(ahead), since))
            }
            Some((least, _)) => {
                // The old window still counts while the new one has few answers. In the first
                // moments of a window, a single late answer would otherwise make all waiters late.
                self.before = Some(least);
                Some((ahead, heard))
            }
            None => Some((ahead, heard)),
        };
    }

    /// The offset of this process to the store in nanoseconds: exact, or a little too large.
    fn offset(&self) -> i128 {
        match (self.recent, self.before) {
            (Some((recent, _)), Some(before)) => recent.min(before),
            (Some((recent, _)), None) => recent,
            (None, _) => 0,
        }
    }

    /// What the store's clock shows at `now`, or a little less.
    pub(super) fn time_at(&self, now: LocalInstant) -> Timestamp {
        // Rounded down: a store that has shown less must not be said to have shown more.
        let micros = i128::from(now.0).saturating_sub(self.offset()).div_euclid(1_000);
        let end = if micros < 0 { i64::MIN } else { i64::MAX };
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(end))
    }

    /// When the store's clock shows `at`, or a little later.
    pub(super) fn instant_of(&self, at: Timestamp) -> LocalInstant {
        let nanos = nanos_of(at).saturating_add(self.offset());
        let end = if nanos < 0 { i64::MIN } else { i64::MAX };
        LocalInstant(i64::try_from(nanos).unwrap_or(end))
    }
}

fn nanos_of(at: Timestamp) -> i128 {
    i128::from(at.as_micros()).saturating_mul(1_000)
}

/// The instant from which a `LocalInstant` counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch(Instant);

impl Epoch {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> LocalInstant {
        self.local(Instant::now())
    }

    pub(super) fn local(self, at: Instant) -> LocalInstant {
        // A test may set its clock to before the limiter was made.
        match at.checked_duration_since(self.0) {
            Some(after) => LocalInstant(nanos(after)),
            None => LocalInstant(0_i64.saturating_sub(nanos(self.0.saturating_duration_since(at)))),
        }
    }

    pub(super) fn instant(self, at: LocalInstant) -> Instant {
        let distance = Duration::from_nanos(at.0.unsigned_abs().min(FAR_FUTURE.unsigned_abs()));
        let instant =
            if at.0 < 0 { self.0.checked_sub(distance) } else { self.0.checked_add(distance) };
        instant.unwrap_or(self.0)
    }
}

/// Thirty years, as in tokio: later instants are cut off, since a runtime may be unable to
/// represent them.
const FAR_FUTURE: i64 = 30 * 365 * 86_400 * 1_000_000_000;

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).map_or(FAR_FUTURE, |nanos| nanos.min(FAR_FUTURE))
}
