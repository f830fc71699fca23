//! The clock of a store, as far as this process knows it.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Timestamp;

/// Converts the instants of a store to those of this process, by what the store's answers have
/// shown.
///
/// An answer arrives some time after the store has read its clock. So each answer puts the store's
/// instants too late, by its delay, and the answer that puts them earliest is the best. For
/// example, if the store's 0 s lies at 7.2 s, 7.05 s and 7.4 s by three answers, it lies at 7.05 s
/// or a little before.
///
/// All slots of a queue are converted by the same answer. So they keep the order in which the store
/// granted them, whatever the delays were, and no waiter runs early.
#[derive(Debug, Default)]
pub(crate) struct StoreClock {
    /// The best answer of the current window, and when that began.
    recent: Option<(Anchor, Instant)>,
    /// The best answer of the window before.
    before: Option<Anchor>,
}

/// A time that the store's clock has shown, and when this process received it.
#[derive(Clone, Copy, Debug)]
struct Anchor(Timestamp, Instant);

/// The length of a window. Answers older than two of them do not count, since the two clocks may
/// run at different speeds.
const WINDOW: Duration = Duration::from_secs(15);

/// The instant after a wait. Later instants than in thirty years are cut off, since a runtime may be
/// unable to represent them.
pub(crate) fn later(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait.min(FAR_FUTURE)).unwrap_or(now)
}

const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);

impl StoreClock {
    /// Records that this process received `shown`, a time of the store's clock, at `heard`.
    pub(crate) fn observe(&mut self, shown: Timestamp, heard: Instant) {
        let new = Anchor(shown, heard);
        self.recent = Some(match self.recent {
            Some((best, since)) if heard.saturating_duration_since(since) < WINDOW => {
                (best.earlier(new), since)
            }
            Some((best, since)) => {
                // The window before still counts while the new one has few answers. In the first
                // moments of a window, a single late answer would otherwise make all waiters late.
                // But not after a silence, in which the two clocks have drifted apart.
                let is_last = heard.saturating_duration_since(since) < 2 * WINDOW;
                self.before = is_last.then_some(best);
                (new, heard)
            }
            None => (new, heard),
        });
    }

    /// What the store's clock shows at `now`, or a little less; `None` before the first answer.
    pub(crate) fn time_at(&self, now: Instant) -> Option<Timestamp> {
        self.anchor().map(|anchor| anchor.time_at(now))
    }

    /// When the store's clock shows `at`, or a little later; `None` before the first answer.
    pub(crate) fn instant_of(&self, at: Timestamp) -> Option<Instant> {
        self.anchor().map(|anchor| anchor.instant_of(at))
    }

    fn anchor(&self) -> Option<Anchor> {
        let (recent, _) = self.recent?;
        Some(self.before.map_or(recent, |before| before.earlier(recent)))
    }
}

impl Anchor {
    /// The one by which the store's instants come earlier.
    fn earlier(self, other: Self) -> Self {
        let Self(shown, heard) = other;
        if heard < self.instant_of(shown) { other } else { self }
    }

    fn instant_of(self, at: Timestamp) -> Instant {
        let Self(shown, heard) = self;
        match at >= shown {
            true => later(heard, at.since(shown)),
            false => heard.checked_sub(shown.since(at)).unwrap_or(heard),
        }
    }

    fn time_at(self, now: Instant) -> Timestamp {
        let Self(shown, heard) = self;
        if now >= heard {
            return shown + now.saturating_duration_since(heard);
        }
        let before = heard.saturating_duration_since(now).as_micros();
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        Timestamp::from_micros(shown.as_micros().saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is a hundredth slower than that of this process, in a queue that never ends and
    /// in one that was silent: no turn is early by all that the two have drifted apart.
    #[test]
    fn the_instants_follow_a_clock_that_is_slower() {
        let (start, wait) = (Instant::now(), Duration::from_secs(10));
        let steps = (0..60).chain([3_600, 86_400]);
        let mut clock = StoreClock::default();
        for step in steps {
            let now = start + step * Duration::from_secs(5);
            let shown = Timestamp::UNIX_EPOCH + step * Duration::from_millis(4_950);
            clock.observe(shown, now);
            let early = wait.saturating_sub(clock.instant_of(shown + wait).unwrap() - now);
            assert!(early <= Duration::from_millis(300), "{early:?}");
        }
    }

    /// Each answer is late, and the best of them counts, also at the beginning of a window.
    #[test]
    fn a_late_answer_makes_no_turn_late() {
        let start = Instant::now() + Duration::from_secs(3_600);
        let delays = [7_200, 7_050, 7_400, 9_000].map(Duration::from_millis);
        let mut clock = StoreClock::default();
        for (nth, delay) in (0..).zip(delays.into_iter().cycle().take(60)) {
            let passed = nth * Duration::from_secs(3);
            clock.observe(Timestamp::UNIX_EPOCH + passed, start + passed + delay);
            if nth > 0 {
                let first = clock.instant_of(Timestamp::UNIX_EPOCH).unwrap();
                assert_eq!(first, start + delays[1], "{nth}");
            }
        }
        // In both directions, and also before the first answer.
        for seconds in [0, 100] {
            let at = Timestamp::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(clock.time_at(clock.instant_of(at).unwrap()), Some(at));
        }
    }
}
