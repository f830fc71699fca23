//! A clock that reads the processor's counter, and checks it against the system's clock.
//!
//! # Design
//!
//! Reading the system's clock takes half as long as the rest of a decision. Reading the processor's
//! counter (its time-stamp counter, TSC) takes a third of that. But a counter alone can be wrong:
//! its measured rate is off by some millionths, a virtual machine may move to another host, and two
//! processors may count apart.
//!
//! So the counter only measures the time since the last *anchor*: a pair of a count, and the
//! system's time when that was the count. An anchor is used for one millisecond. Then the next
//! reader asks the system again and stores a new anchor. This bounds the damage:
//!
//! * A counter that runs ahead is trusted for less than a millisecond, so the clock is less than a
//!   millisecond ahead.
//! * A counter that stood still (in a virtual machine that was suspended, say) or fell back leaves
//!   the clock behind until it has counted a millisecond since the anchor. No bucket gains tokens
//!   for the time that is missing, until the next anchor adds it.
//!
//! For example, the anchor is the count 1,000 at the system's time 5,000,000 ns, and one count is
//! one nanosecond. A reader that finds the count 401,000 computes 5,000,000 + 400,000 - 400,000 /
//! 1,024 = 5,399,610 ns. A reader that finds the count 1,001,000 is a whole millisecond after the
//! anchor, so it asks the system.
//!
//! Between two anchors the clock runs slower than the counter by one part in 1,024. So it is always
//! slightly behind the system's clock (at most a microsecond, and the time that it takes to ask),
//! and does not go back at the next anchor.
//!
//! # Races
//!
//! The two numbers of an anchor belong together. They are guarded by a version, as in a seqlock:
//! the version is odd while a thread writes them. A reader never waits for a lock. It reads the
//! version, the two numbers, and the version again, and discards the numbers if the version was odd
//! or has changed.
//!
//! Within a thread the clock does not go back. Between threads it may, by a microsecond or two,
//! because a processor may read its counter before it runs the instructions that stand earlier in
//! the program. It may go back by ten microseconds if the writing thread was preempted while it
//! asked the system. A clock that goes back counts as no time passed, so no tokens are lost or
//! gained.

#[cfg(not(tollgate_loom))]
use std::hint::spin_loop;
#[cfg(not(tollgate_loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(tollgate_loom)]
use loom::hint::spin_loop;
#[cfg(tollgate_loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// How long an anchor is used, in nanoseconds.
const ANCHOR_LIFE: u64 = 1_000_000;

/// How long a call to the system may take, in nanoseconds, for its time to become an anchor.
///
/// A longer call means that the thread was preempted between the call and the reading of the
/// counter: the count would not belong to the time.
const MAX_ANCHOR_CALL: u64 = 10_000;

/// How often a reader checks whether another thread has finished writing the anchor, before it asks
/// the system itself.
const MAX_SPINS: u32 = if cfg!(tollgate_loom) { 1 } else { 100 };

/// A counter, and the system's clock that it is checked against.
pub(super) trait CounterSource {
    /// The current count.
    fn count(&self) -> u64;

    /// The nanoseconds between two counts; zero if `to` is not after `from`.
    fn nanos_between(&self, from: u64, to: u64) -> u64;

    /// The nanoseconds since the source was made, by the system's clock.
    fn system_nanos(&self) -> u64;
}

/// A counter and its anchor.
#[derive(Debug)]
pub(super) struct Counter<S> {
    source: S,
    /// Odd while a thread writes the anchor: the next two fields.
    version: AtomicU64,
    count: AtomicU64,
    nanos: AtomicU64,
}

impl<S: CounterSource> Counter<S> {
    pub(super) fn new(source: S) -> Self {
        let [version, count, nanos] = [0; 3].map(AtomicU64::new);
        let counter = Self { source, version, count, nanos };
        counter.resync();
        counter
    }

    /// The nanoseconds since the source was made.
    #[inline]
    pub(super) fn nanos(&self) -> u64 {
        match self.try_read() {
            Some(nanos) => nanos,
            None => self.resync(),
        }
    }

    /// The time by the counter; `None` if the anchor is too old, is being written, or is ahead of
    /// the counter.
    #[inline]
    pub(super) fn try_read(&self) -> Option<u64> {
        // Before the anchor is read. An anchor that is stored in between has a later count, so it
        // is discarded below, and no difference wraps.
        let count = self.source.count();
        let version = self.version.load(Ordering::Acquire);
        let (from, nanos) =
            (self.count.load(Ordering::Relaxed), self.nanos.load(Ordering::Relaxed));
        // The two loads above must not move below the second load of the version. Otherwise they
        // could return numbers of the next anchor under the old version.
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        // The counter is behind the anchor: the thread has moved to a processor that counts apart,
        // or the machine to another host.
        if !whole || count < from {
            return None;
        }
        let passed = self.source.nanos_between(from, count);
        // The difference cannot be negative, so it does not wrap.
        let slower = passed.wrapping_sub(passed / 1_024);
        (passed < ANCHOR_LIFE).then(|| nanos.saturating_add(slower))
    }

    /// Asks the system, and stores the answer as the anchor for all readers.
    #[cold]
    pub(super) fn resync(&self) -> u64 {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version.wrapping_add(1);
        let writes = version.is_multiple_of(2)
            && self
                .version
                .compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !writes {
            return self.wait_for_resync();
        }
        // The stores below must not move above the store of the odd version. Otherwise a reader
        // could see numbers of the new anchor under the old version.
        fence(Ordering::Release);
        let before = self.source.count();
        let nanos = self.source.system_nanos();
        let after = self.source.count();
        // Otherwise the old anchor stays, and as it is too old, the next reader asks the system
        // again.
        if after >= before && self.source.nanos_between(before, after) <= MAX_ANCHOR_CALL {
            // The count after the call, not the one before: the clock then errs to the past.
            self.count.store(after, Ordering::Relaxed);
            self.nanos.store(nanos, Ordering::Relaxed);
        }
        // A reader that sees this even version sees both numbers of this anchor.
        self.version.store(odd.wrapping_add(1), Ordering::Release);
        nanos
    }

    fn wait_for_resync(&self) -> u64 {
        let spins = (0..MAX_SPINS).inspect(|_| spin_loop());
        let read = spins.filter_map(|_| self.try_read()).next();
        // The writing thread was preempted, perhaps for milliseconds. Do not wait for it.
        read.unwrap_or_else(|| self.source.system_nanos())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::machine::Machine;
    use crate::clock::processor::Processor;

    /// A counter that the test sets; each count is a nanosecond.
    #[derive(Default)]
    struct ManualSource {
        count: Cell<u64>,
        system: Cell<u64>,
        /// How long it takes to ask the system.
        takes: Cell<u64>,
        asked: Cell<u32>,
    }

    impl CounterSource for ManualSource {
        fn count(&self) -> u64 {
            self.count.get()
        }

        fn nanos_between(&self, from: u64, to: u64) -> u64 {
            to.saturating_sub(from)
        }

        fn system_nanos(&self) -> u64 {
            self.asked.set(self.asked.get() + 1);
            let nanos = self.system.get();
            self.pass(self.takes.get());
            nanos
        }
    }

    impl ManualSource {
        fn pass(&self, nanos: u64) {
            self.count.set(self.count.get() + nanos);
            self.system.set(self.system.get() + nanos);
        }
    }

    #[test]
    fn the_system_is_asked_once_a_millisecond() {
        let counter = Counter::new(ManualSource::default());
        for _ in 0..10_000 {
            counter.source.pass(1_000);
            let (told, truth) = (counter.nanos(), counter.source.system.get());
            assert!(told <= truth && truth - told < 1_000, "{told} at {truth}");
        }
        // Once for each of ten milliseconds, and once at the start.
        assert_eq!(counter.source.asked.get(), 11);
    }

    #[test]
    fn a_slow_call_to_the_system_does_not_become_the_anchor() {
        let counter = Counter::new(ManualSource::default());
        counter.source.pass(ANCHOR_LIFE);
        counter.source.takes.set(MAX_ANCHOR_CALL + 1);
        assert_eq!(counter.nanos(), ANCHOR_LIFE);
        counter.source.takes.set(0);
        // The slow answer did not become the anchor, so the system is asked again. Otherwise the
        // clock would be behind by as long as that call took.
        assert_eq!(counter.nanos(), ANCHOR_LIFE + MAX_ANCHOR_CALL + 1);
        assert_eq!(counter.source.asked.get(), 3);
    }

    #[test]
    fn a_preempted_writer_does_not_block_readers() {
        let counter = Counter::new(ManualSource::default());
        counter.source.pass(7);
        counter.version.store(1, Ordering::Relaxed);
        assert_eq!(counter.nanos(), 7);
    }

    /// A jump back to the anchor, or to a count after it as here, is only noticed once a
    /// millisecond has been counted since. A jump to a count before the anchor is detected at once.
    #[test]
    fn a_counter_that_falls_back_makes_time_stand_still() {
        let counter = Counter::new(ManualSource::default());
        for _ in 0..10 {
            counter.source.pass(ANCHOR_LIFE - 1);
            assert!(counter.nanos() < ANCHOR_LIFE);
            counter.source.count.set(0);
        }
        counter.source.pass(ANCHOR_LIFE);
        assert_eq!(counter.nanos(), 10 * (ANCHOR_LIFE - 1) + ANCHOR_LIFE);
    }

    proptest! {
        /// Whatever the counter does (it jumps, or runs up to a tenth too fast or too slow), the
        /// clock is off by little more than a millisecond. With a counter whose rate is off by less
        /// than a thousandth, the clock never goes back and is never ahead of the system's.
        #[test]
        fn the_clock_stays_close_to_the_system_whatever_the_counter_does(
            steps in prop::collection::vec((0_u64..300_000, -100_i64..100, 0_u8..40), 1..200),
            wild: bool,
        ) {
            let source = ManualSource::default();
            source.count.set(1 << 60);
            let counter = Counter::new(source);
            let mut last = 0;
            for (nanos, permille, leap) in steps {
                let source = &counter.source;
                source.system.set(source.system.get() + nanos);
                // By up to 10 %, or 900 millionths.
                let off = if wild { permille * 1_000 } else { permille * 9 };
                let counted = i64::try_from(nanos).unwrap();
                let counted = counted + counted * off / 1_000_000;
                let mut count = source.count.get() + u64::try_from(counted).unwrap();
                match leap {
                    // The count of another processor, far ahead or far behind.
                    0 if wild => count += 1 << 40,
                    1 if wild => count -= 1 << 40,
                    _ => {}
                }
                source.count.set(count);
                let (told, truth) = (counter.nanos(), counter.source.system.get());
                prop_assert!(told.abs_diff(truth) <= ANCHOR_LIFE + ANCHOR_LIFE / 8, "{told} at {truth}");
                if !wild {
                    prop_assert!(told >= last, "{told} after {last}");
                    prop_assert!(told <= truth);
                }
                last = told;
            }
        }
    }

    #[test]
    fn a_reader_never_sees_half_of_an_anchor() {
        let counter = Counter::new(Processor::new(Machine::new()));
        let within = |told: u64, earliest: u64, latest: u64| {
            // The counter may be off by as much as it is trusted for.
            earliest <= told.saturating_add(ANCHOR_LIFE)
                && told <= latest.saturating_add(ANCHOR_LIFE)
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200_000 {
                        let earliest = counter.source.system_nanos();
                        let told = counter.nanos();
                        let latest = counter.source.system_nanos();
                        assert!(within(told, earliest, latest), "{earliest} {told} {latest}");
                    }
                });
            }
        });
    }
}
