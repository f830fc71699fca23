//! The machine's two clocks: one that only runs on, and the time of day.
//!
//! # Design
//!
//! The time of day can be set, so decisions count by the other clock. That one stands still while the
//! machine is suspended, and does not know that the time of day was wrong when the process started.
//! So once a second the two are compared, and the *offset* is what the clock that runs on lacks. For
//! example, a machine starts at 02:00 and is suspended for ten hours: the clock that runs on says
//! 02:00:05, the time of day 12:00:05. The offset becomes ten hours.
//!
//! * If the time of day is ahead by more than a second, the offset takes the difference at once.
//! * If it is behind by more than a second, the offset falls by a 1,024th of the time that passes,
//!   until the two have met. A clock that went back would stop all buckets instead, and one that was
//!   much slower would break what others count on: that clocks differ in rate by less than a
//!   thousandth.
//! * Whatever is less is how computers keep time.
//!
//! Between two threads, the clock may go back by a millisecond when the offset falls.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::timestamp::Timestamp;

/// How often the clocks are compared, in microseconds.
const EVERY: i64 = 1_000_000;

/// The difference from which one has left the other, in microseconds.
const LEAST: i64 = 1_000_000;

/// How much slower a clock is that is ahead.
const SLOWER: i64 = 1_024;

/// How far apart two readings may be to be compared, in microseconds. The thread was preempted between
/// others.
const SLOWEST: i64 = 10_000;

/// A clock that counts from its start.
pub(super) trait Nanos {
    /// The nanoseconds since the clock was made.
    fn nanos(&self) -> u64;
}

/// The two clocks of a machine. [`Nanos::nanos`] is the one that only runs on.
pub(super) trait MachineSource: Nanos {
    /// The time of day.
    fn time_of_day(&self) -> Timestamp;
}

/// A clock that follows the time of day where that has left the clock that runs on.
#[derive(Debug)]
pub(super) struct Followed<S> {
    source: S,
    /// The time of day when the source was made.
    began: Timestamp,
    /// What the clock that runs on lacks, in microseconds.
    offset: AtomicI64,
    /// When the clocks are compared next, by the clock that runs on.
    next: AtomicI64,
    /// Held while they are compared: whether the clock is ahead, and therefore slower.
    is_ahead: Mutex<bool>,
}

impl<S: MachineSource> Followed<S> {
    pub(super) fn new(source: S) -> Self {
        let began = source.time_of_day().as_micros().saturating_sub(micros(source.nanos()));
        let (offset, next) = (AtomicI64::new(0), AtomicI64::new(EVERY));
        let is_ahead = Mutex::new(false);
        Self { source, began: Timestamp::from_micros(began), offset, next, is_ahead }
    }

    /// The time at which this clock shows no nanosecond.
    pub(super) const fn began(&self) -> Timestamp {
        self.began
    }

    #[cold]
    fn compare(&self, passed: i64) {
        // The others wait, as they would otherwise show what the clock no longer shows. A poisoned
        // lock is harmless: nothing that holds it can panic halfway through a change.
        let mut is_ahead = self.is_ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.next.load(Ordering::Relaxed);
        if passed < due {
            return;
        }
        let time_of_day = self.source.time_of_day();
        if micros(self.source.nanos()).saturating_sub(passed) <= SLOWEST {
            let offset = self.offset.load(Ordering::Relaxed);
            let shown = self.began.as_micros().saturating_add(passed).saturating_add(offset);
            let behind = time_of_day.as_micros().saturating_sub(shown);
            let change = if behind > LEAST {
                behind
            } else if *is_ahead && behind < 0 {
                let since = passed.saturating_sub(due).saturating_add(EVERY);
                behind.max(-since / SLOWER)
            } else {
                0
            };
            *is_ahead = behind < if *is_ahead { 0 } else { -LEAST };
            self.offset.store(offset.saturating_add(change), Ordering::Relaxed);
        }
        // After the offset: who finds this comparison done also finds what it has changed.
        self.next.store(passed.saturating_add(EVERY), Ordering::Release);
    }
}

impl<S: MachineSource> Nanos for Followed<S> {
    /// Compares the clocks when that is due.
    fn nanos(&self) -> u64 {
        let nanos = self.source.nanos();
        let passed = micros(nanos);
        if passed >= self.next.load(Ordering::Acquire) {
            self.compare(passed);
        }
        // It is not below zero, as the offset falls by less than the time that has passed.
        nanos.saturating_add_signed(self.offset.load(Ordering::Relaxed).saturating_mul(1_000))
    }
}

/// 63 bits of microseconds last for 292,000 years.
fn micros(nanos: u64) -> i64 {
    i64::try_from(nanos / 1_000).unwrap_or(i64::MAX)
}

/// The machine's time of day.
pub(crate) fn machine_time() -> Timestamp {
    // A machine with a clock before 1970 starts at the epoch: only differences matter.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::UNIX_EPOCH + since_epoch
}

/// The machine that this process runs on.
#[derive(Debug)]
pub(super) struct Machine(Instant);

impl Machine {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Nanos for Machine {
    fn nanos(&self) -> u64 {
        let passed = self.0.elapsed();
        // 64 bits of nanoseconds last for five centuries. `as_nanos` would count in 128 bits, which
        // is slower, and without `quanta` this runs for every decision.
        passed
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::from(passed.subsec_nanos()))
    }
}

impl MachineSource for Machine {
    fn time_of_day(&self) -> Timestamp {
        machine_time()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    /// Two clocks that the test sets, in microseconds.
    #[derive(Debug, Default)]
    struct Script {
        passed: AtomicU64,
        day: AtomicI64,
        /// How long it takes to ask for the time of day.
        takes: AtomicU64,
    }

    impl Nanos for Arc<Script> {
        fn nanos(&self) -> u64 {
            self.passed.load(Ordering::SeqCst) * 1_000
        }
    }

    impl MachineSource for Arc<Script> {
        fn time_of_day(&self) -> Timestamp {
            self.passed.fetch_add(self.takes.load(Ordering::SeqCst), Ordering::SeqCst);
            Timestamp::from_micros(self.day.load(Ordering::SeqCst))
        }
    }

    impl Script {
        fn pass(&self, micros: i64) {
            self.passed.fetch_add(micros.unsigned_abs(), Ordering::SeqCst);
            self.day.fetch_add(micros, Ordering::SeqCst);
        }

        fn step(&self, micros: i64) {
            self.day.fetch_add(micros, Ordering::SeqCst);
        }

        fn day(&self) -> i64 {
            self.day.load(Ordering::SeqCst)
        }
    }

    fn machine() -> (Arc<Script>, Followed<Arc<Script>>) {
        let script = Arc::new(Script::default());
        script.step(500_000 * HOUR);
        (Arc::clone(&script), Followed::new(script))
    }

    /// What the clock of a store shows.
    fn shown(machine: &Followed<Arc<Script>>) -> i64 {
        machine.began().as_micros() + micros(machine.nanos())
    }

    #[test]
    fn the_time_of_a_suspension_counts_within_a_second() {
        let (script, machine) = machine();
        script.step(10 * HOUR);
        script.pass(SECOND);
        assert_eq!(shown(&machine), script.day());
    }

    #[test]
    fn a_clock_that_was_wrong_when_the_process_started_is_followed() {
        let (script, machine) = machine();
        for step in [490_000 * HOUR, 2 * SECOND] {
            script.step(step);
            script.pass(SECOND);
            assert_eq!(shown(&machine), script.day(), "after {step}");
        }
    }

    #[test]
    fn a_second_is_no_step() {
        let (script, machine) = machine();
        for step in [SECOND, -2 * SECOND, SECOND] {
            script.step(step);
            script.pass(5 * SECOND);
            assert_eq!(shown(&machine), 500_000 * HOUR + micros(script.nanos()));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_is_slower_by_less_than_a_thousandth_until_the_two_have_met() {
        let (script, machine) = machine();
        script.pass(SECOND);
        let begun = shown(&machine);
        script.step(-HOUR);
        // The next comparison notes it.
        script.pass(SECOND);
        let mut last = shown(&machine);
        assert_eq!(last, begun + SECOND);
        for _ in 0..100_000 {
            script.pass(7_000);
            let now = shown(&machine);
            assert!(now >= last - 1_000, "{now} after {last}");
            last = now;
        }
        let slower = 700 * SECOND - (last - begun - SECOND);
        assert!((682_000..=684_000).contains(&slower), "{slower} in 700 s");
        // Also for a process that asks once an hour.
        for _ in 0..1_024 {
            script.pass(HOUR);
            shown(&machine);
        }
        assert_eq!(shown(&machine), script.day());
        script.pass(HOUR);
        assert_eq!(shown(&machine), script.day());
    }

    /// The time of day would seem to have left by as much as the thread stood still.
    #[test]
    fn a_thread_that_stands_still_between_two_readings_compares_nothing() {
        let (script, machine) = machine();
        let takes = 5 * SECOND;
        script.takes.store(takes.unsigned_abs(), Ordering::SeqCst);
        script.step(takes);
        script.pass(SECOND);
        assert_eq!(machine.nanos(), SECOND.unsigned_abs() * 1_000);
    }

    proptest! {
        /// Whatever the time of day does, the clock goes back by no more than a millisecond, and
        /// gains no more than the time of day has ever been ahead.
        #[test]
        fn the_clock_never_goes_back_nor_runs_ahead_of_the_latest_time_of_day(
            moves in prop::collection::vec((0..3_000_000_i64, 0..40_u8, -30 * HOUR..30 * HOUR), 1..200),
        ) {
            let (script, machine) = machine();
            let (mut last, mut latest) = (shown(&machine), script.day());
            for (passes, kind, step) in moves {
                script.step(if kind == 0 { step } else { 0 });
                latest = latest.max(script.day());
                script.pass(if kind < 20 { passes } else { passes / 1_000 });
                latest += if kind < 20 { passes } else { passes / 1_000 };
                let now = shown(&machine);
                prop_assert!(now >= last - 1_000, "{now} after {last}");
                prop_assert!(now <= latest, "{now}, and it was never later than {latest}");
                last = now;
            }
        }
    }

    #[test]
    fn threads_that_compare_at_once_follow_once() {
        let (script, machine) = machine();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        script.step(10 * SECOND);
                        script.pass(SECOND / 10);
                        machine.nanos();
                    }
                });
            }
        });
        script.pass(2 * SECOND);
        assert!((shown(&machine) - script.day()).abs() <= LEAST);
    }
}
