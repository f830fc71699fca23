//! The processor's counter as a clock, on the system's leash.
//!
//! # Design
//!
//! To ask the system for the time takes half as long as the rest of a decision; to read the
//! processor's counter takes a third of that. A counter alone can be wrong: its rate was measured
//! and is off by some millionths, a machine may be moved to another, the counters of two processors
//! may differ. So it only tells how long ago the system was asked, and when that is a millisecond,
//! the system is asked again. A counter that is ahead is believed for less than that, and is ahead
//! by less; one that has stood still lets time stand still, which grants nothing, until it has
//! counted a millisecond.
//!
//! The two numbers that belong together, the count and the time at which the system was asked, are
//! under a version that is odd while they are written: readers wait for nobody, and see when they
//! have read half of it.
//!
//! In between time runs slower by one part in 1,024. So it is always a little behind the system's,
//! by a microsecond and what it takes to ask, and does not go back when that is asked again. Only
//! from one thread to another it may, by a microsecond or two, as a processor may read its counter
//! before what stands earlier in the program; and by ten where the system was asked because another
//! thread had lost its processor while asking. No time has passed then.

#[cfg(not(tollgate_loom))]
use std::hint::spin_loop;
#[cfg(not(tollgate_loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

#[cfg(tollgate_loom)]
use loom::hint::spin_loop;
#[cfg(tollgate_loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// For how long the counter is believed, in nanoseconds.
const TRUSTED: u64 = 1_000_000;

/// The longest that the system may take to answer for its time to belong to a count, in
/// nanoseconds: one that answers while the thread has lost its processor is not counted from.
const PROMPT: u64 = 10_000;

/// How often a reader looks whether another one has done with asking the system.
const LOOKS: u32 = if cfg!(tollgate_loom) { 1 } else { 100 };

/// What tells the time.
pub(super) trait CounterSource {
    /// The counter.
    fn count(&self) -> u64;

    /// The nanoseconds from one count to the next; zero if that is not after it.
    fn between(&self, from: u64, to: u64) -> u64;

    /// The nanoseconds that have passed, as the system says.
    fn system(&self) -> u64;
}

/// A counter and what the system said.
#[derive(Debug)]
pub(super) struct Counter<S> {
    source: S,
    /// Odd while the two others are written.
    version: AtomicU64,
    count: AtomicU64,
    nanos: AtomicU64,
}

impl<S: CounterSource> Counter<S> {
    pub(super) fn new(source: S) -> Self {
        let [version, count, nanos] = [0; 3].map(AtomicU64::new);
        let counter = Self { source, version, count, nanos };
        counter.ask();
        counter
    }

    /// The nanoseconds that have passed.
    #[inline]
    pub(super) fn nanos(&self) -> u64 {
        match self.counted() {
            Some(nanos) => nanos,
            None => self.ask(),
        }
    }

    /// What the counter says, if the system was asked just now.
    #[inline]
    pub(super) fn counted(&self) -> Option<u64> {
        let count = self.source.count();
        let version = self.version.load(Ordering::Acquire);
        let (from, nanos) =
            (self.count.load(Ordering::Relaxed), self.nanos.load(Ordering::Relaxed));
        // The two were read before the version is read again.
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        // A count from before is that of another processor, or of another machine.
        if !whole || count < from {
            return None;
        }
        let passed = self.source.between(from, count);
        // Never below zero.
        let slower = passed.wrapping_sub(passed / 1_024);
        (passed < TRUSTED).then(|| nanos.saturating_add(slower))
    }

    /// What the system says, for others to count from.
    #[cold]
    pub(super) fn ask(&self) -> u64 {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version.wrapping_add(1);
        let writes = version.is_multiple_of(2)
            && self
                .version
                .compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !writes {
            return self.asked_by_another();
        }
        // No reader may see what is written next under the old version.
        fence(Ordering::Release);
        let before = self.source.count();
        let nanos = self.source.system();
        let after = self.source.count();
        if after >= before && self.source.between(before, after) <= PROMPT {
            // Counted from the later one, time is rather behind the system's than ahead of it.
            self.count.store(after, Ordering::Relaxed);
            self.nanos.store(nanos, Ordering::Relaxed);
        }
        self.version.store(odd.wrapping_add(1), Ordering::Release);
        nanos
    }

    fn asked_by_another(&self) -> u64 {
        let looks = (0..LOOKS).inspect(|_| spin_loop());
        let told = looks.filter_map(|_| self.counted()).next();
        // Whoever asks has lost its processor meanwhile.
        told.unwrap_or_else(|| self.source.system())
    }
}

/// The counter of this processor and the clock of this system.
#[derive(Debug)]
pub(super) struct Processor {
    clock: quanta::Clock,
    start: Instant,
}

impl Processor {
    /// Measures the counter, if this is the first time: for a fifth of a second at most.
    pub(super) fn new() -> Self {
        Self { clock: quanta::Clock::new(), start: Instant::now() }
    }
}

impl CounterSource for Processor {
    #[inline]
    fn count(&self) -> u64 {
        self.clock.raw()
    }

    #[inline]
    fn between(&self, from: u64, to: u64) -> u64 {
        self.clock.delta_as_nanos(from, to)
    }

    fn system(&self) -> u64 {
        // Five centuries.
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// A counter that is set by hand, of a nanosecond each.
    #[derive(Default)]
    struct Hands {
        count: Cell<u64>,
        system: Cell<u64>,
        /// How long it takes to ask the system.
        takes: Cell<u64>,
        asked: Cell<u32>,
    }

    impl CounterSource for Hands {
        fn count(&self) -> u64 {
            self.count.get()
        }

        fn between(&self, from: u64, to: u64) -> u64 {
            to.saturating_sub(from)
        }

        fn system(&self) -> u64 {
            self.asked.set(self.asked.get() + 1);
            let nanos = self.system.get();
            self.pass(self.takes.get());
            nanos
        }
    }

    impl Hands {
        fn pass(&self, nanos: u64) {
            self.count.set(self.count.get() + nanos);
            self.system.set(self.system.get() + nanos);
        }
    }

    #[test]
    fn the_system_is_asked_once_a_millisecond() {
        let counter = Counter::new(Hands::default());
        for _ in 0..10_000 {
            counter.source.pass(1_000);
            let (told, truth) = (counter.nanos(), counter.source.system.get());
            assert!(told <= truth && truth - told < 1_000, "{told} at {truth}");
        }
        // Ten milliseconds, and once at the start.
        assert_eq!(counter.source.asked.get(), 11);
    }

    #[test]
    fn a_reading_that_took_long_is_not_counted_from() {
        let counter = Counter::new(Hands::default());
        counter.source.pass(TRUSTED);
        counter.source.takes.set(PROMPT + 1);
        assert_eq!(counter.nanos(), TRUSTED);
        counter.source.takes.set(0);
        // Asked again: the count of the long one would be behind by all of it.
        assert_eq!(counter.nanos(), TRUSTED + PROMPT + 1);
        assert_eq!(counter.source.asked.get(), 3);
    }

    #[test]
    fn whoever_loses_its_processor_while_asking_keeps_nobody() {
        let counter = Counter::new(Hands::default());
        counter.source.pass(7);
        counter.version.store(1, Ordering::Relaxed);
        assert_eq!(counter.nanos(), 7);
    }

    /// Far jumps are found out at once. One back to no less than the counter was counted from is
    /// not, before a millisecond has been counted.
    #[test]
    fn a_counter_that_falls_back_makes_time_stand_still_and_grants_nothing() {
        let counter = Counter::new(Hands::default());
        for _ in 0..10 {
            counter.source.pass(TRUSTED - 1);
            assert!(counter.nanos() < TRUSTED);
            counter.source.count.set(0);
        }
        counter.source.pass(TRUSTED);
        assert_eq!(counter.nanos(), 10 * (TRUSTED - 1) + TRUSTED);
    }

    proptest! {
        /// However far the counter jumps, and if it runs up to a tenth too fast or too slow, the
        /// time told is off by little more than a millisecond; with one that is off by less than a
        /// thousandth it never goes back, nor ahead of the system's.
        #[test]
        fn the_leash_holds(
            steps in prop::collection::vec((0_u64..300_000, -100_i64..100, 0_u8..40), 1..200),
            wild: bool,
        ) {
            let hands = Hands::default();
            hands.count.set(1 << 60);
            let counter = Counter::new(hands);
            let mut last = 0;
            for (nanos, permille, leap) in steps {
                let hands = &counter.source;
                hands.system.set(hands.system.get() + nanos);
                // By up to 10 %, or 900 millionths.
                let off = if wild { permille * 1_000 } else { permille * 9 };
                let counted = i64::try_from(nanos).unwrap();
                let counted = counted + counted * off / 1_000_000;
                let mut count = hands.count.get() + u64::try_from(counted).unwrap();
                match leap {
                    // Another processor's, far ahead or behind.
                    0 if wild => count += 1 << 40,
                    1 if wild => count -= 1 << 40,
                    _ => {}
                }
                hands.count.set(count);
                let (told, truth) = (counter.nanos(), counter.source.system.get());
                prop_assert!(told.abs_diff(truth) <= TRUSTED + TRUSTED / 8, "{told} at {truth}");
                if !wild {
                    prop_assert!(told >= last, "{told} after {last}");
                    prop_assert!(told <= truth);
                }
                last = told;
            }
        }
    }

    #[test]
    fn nobody_reads_half_of_what_another_writes() {
        let counter = Counter::new(Processor::new());
        let within = |told: u64, earliest: u64, latest: u64| {
            // The counter itself may be wrong, as long as it is believed.
            earliest <= told.saturating_add(TRUSTED) && told <= latest.saturating_add(TRUSTED)
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200_000 {
                        let earliest = counter.source.system();
                        let told = counter.nanos();
                        let latest = counter.source.system();
                        assert!(within(told, earliest, latest), "{earliest} {told} {latest}");
                    }
                });
            }
        });
    }
}
