//! Where a store gets the time from: [`SystemClock`], or another [`Clock`] in tests.
//!
//! Tollgate counts time in whole microseconds since the Unix epoch, as a [`Timestamp`]. The memory
//! store reads [`SystemClock`] unless [`Memory::clock`](crate::backend::Memory::clock) sets another
//! clock. A Redis store goes by the clock of its server.
//!
//! # Examples
//!
//! A test that does not wait:
//!
//! ```
//! use tollgate::backend::Memory;
//! use tollgate::clock::ManualClock;
//! use tollgate::{HOUR, Limit, Quota, RateLimiter, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
//! let limiter = RateLimiter::new(Memory::new().clock(clock.clone()));
//! let reports = Limit::new("reports", Quota::token_bucket(1, HOUR));
//!
//! assert!(limiter.limit(&reports).await.is_ok());
//! assert!(limiter.limit(&reports).await.is_err());
//! clock.advance(HOUR);
//! assert!(limiter.limit(&reports).await.is_ok());
//! # }
//! ```
//!
//! # Design
//!
//! Decisions never read a clock themselves. A backend asks its [`Clock`] once for each decision and
//! passes the [`Timestamp`] to the [`algebra`](crate::algebra). So a [`ManualClock`] replaces time
//! in a test, everywhere.

#[cfg(feature = "quanta")]
mod counter;
mod machine;
mod parse_error;
#[cfg(feature = "quanta")]
mod processor;
#[cfg(feature = "serde")]
mod serde;
mod text;
mod timestamp;

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

#[cfg(feature = "quanta")]
use self::counter::Counter;
pub(crate) use self::machine::machine_time;
use self::machine::{Followed, Machine, Nanos};
pub use self::parse_error::ParseError;
#[cfg(feature = "quanta")]
use self::processor::Processor;
pub(crate) use self::text::excerpt;
pub use self::timestamp::Timestamp;

pub(crate) mod kit {
    pub use super::text::excerpt;
}

/// A source of time for a store in this process.
///
/// A clock should never go backwards. If it does, the store acts as if no time had passed: buckets
/// gain nothing and lose nothing.
///
/// The memory store reads its clock while it holds locks. A clock whose `now` calls a limiter on
/// the same store deadlocks.
///
/// # Examples
///
/// A clock that runs at double speed, for a rehearsal:
///
/// ```
/// use tollgate::Timestamp;
/// use tollgate::clock::{Clock, SystemClock};
///
/// #[derive(Debug)]
/// struct DoubleSpeed {
///     clock: SystemClock,
///     start: Timestamp,
/// }
///
/// impl Clock for DoubleSpeed {
///     fn now(&self) -> Timestamp {
///         self.start + 2 * self.clock.now().since(self.start)
///     }
/// }
///
/// let clock = SystemClock::new();
/// let fast = DoubleSpeed { clock, start: clock.now() };
/// assert!(fast.now() <= fast.now());
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// A time that only passes, for the distance between two instants: [`now`](Self::now), unless the
    /// clock follows another one that can be set, as [`SystemClock`] does.
    fn monotonic(&self) -> Timestamp {
        self.now()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn monotonic(&self) -> Timestamp {
        (**self).monotonic()
    }
}

/// The machine's time of day, counted by its monotonic clock.
///
/// # When the machine's clock is set
///
/// Once a second a reader compares the two. A difference of up to a second changes nothing.
///
/// * **The time of day is ahead**: the machine was suspended, or had a wrong clock when the process
///   started. The clock takes the step at once. To the buckets, that time has passed: they gain what
///   they would have gained, up to their capacity.
/// * **It is behind**: time passes more slowly, by a 1,024th, until the two have met: a minute takes 17
///   hours, and an hour six weeks. Meanwhile windows that begin at midnight begin early, until the
///   process restarts. If the clock went back instead, buckets would gain nothing until it has caught up.
///
/// All clocks of a process show the same time.
///
/// # With the feature `quanta`
///
/// The feature is on by default. The clock then reads the processor's own counter (the time-stamp
/// counter), which takes a third of the time of a call to the system. Once a millisecond it asks
/// the system as well, and counts on from that answer.
///
/// * **Error bound.** Whatever is wrong with the counter (its rate, processors that count apart, a
///   virtual machine that was moved), the clock is less than a millisecond ahead. If the counter
///   stood still or fell back, the clock is behind until the counter has counted a millisecond, and
///   buckets gain the tokens of that time later.
/// * **Usually** the clock is behind the system's by a microsecond or two at most, and by ten more
///   where the system is slow to answer. Between two threads it may go back by as much.
/// * **Start.** The first clock of a process measures the counter's rate. That takes a millisecond
///   on a quiet machine, and never more than a fifth of a second.
/// * On a processor without a steady counter, each reading asks the system.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    source: SystemSource,
    /// The time at which `source` started.
    anchor: Timestamp,
}

/// Tells how much time has passed since the first clock of the process was made. There is one for the
/// process: measuring the counter's rate takes up to a fifth of a second.
type SystemSource = &'static Quick<Followed<Machine>>;

#[cfg(feature = "quanta")]
type Quick<C> = Counter<Processor<C>>;
#[cfg(not(feature = "quanta"))]
type Quick<C> = C;

#[cfg(feature = "quanta")]
fn quick<C: Nanos>(clock: C) -> Quick<C> {
    Counter::new(Processor::new(clock))
}
#[cfg(not(feature = "quanta"))]
fn quick<C: Nanos>(clock: C) -> Quick<C> {
    clock
}

impl SystemClock {
    /// Reads the machine's time, if this is the first clock of the process.
    #[must_use]
    pub fn new() -> Self {
        static SOURCE: LazyLock<(Quick<Followed<Machine>>, Timestamp)> = LazyLock::new(|| {
            let followed = Followed::new(Machine::new());
            let began = followed.began();
            (quick(followed), began)
        });
        let (source, anchor) = &*SOURCE;
        Self { source, anchor: *anchor }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        self.anchor.plus_micros(self.source.nanos() / 1_000)
    }

    #[inline]
    fn monotonic(&self) -> Timestamp {
        static SOURCE: LazyLock<(Quick<Machine>, Timestamp)> =
            LazyLock::new(|| (quick(Machine::new()), machine_time()));
        let (source, anchor) = &*SOURCE;
        anchor.plus_micros(source.nanos() / 1_000)
    }
}

/// The same clock, but no earlier than `floor` and the time that passes from now on.
pub fn not_before(clock: Arc<dyn Clock>, floor: Timestamp) -> Arc<dyn Clock> {
    if clock.now() >= floor {
        return clock;
    }
    let ahead = floor.as_micros().saturating_sub(clock.monotonic().as_micros());
    Arc::new(ClockNotBefore { clock, ahead })
}

/// A clock that is this many microseconds ahead of what only passes, or later.
#[derive(Debug)]
struct ClockNotBefore {
    clock: Arc<dyn Clock>,
    ahead: i64,
}

impl Clock for ClockNotBefore {
    fn now(&self) -> Timestamp {
        self.clock.now().max(self.monotonic())
    }

    fn monotonic(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.monotonic().as_micros().saturating_add(self.ahead))
    }
}

/// The machine's time when the clock was made, advanced by tokio's clock.
///
/// With a runtime that has its clock paused, time stands still for buckets, reservations and timers
/// alike until the test advances it. Otherwise it advances with the monotonic clock of the machine, and
/// unlike [`SystemClock`] does not follow the time of day.
///
/// # Examples
///
/// With a paused clock, tokio advances to the next timer by itself. Three reservations of a limit
/// of one an hour take two hours of virtual time:
///
/// ```
/// use tokio::time::Instant;
/// use tollgate::backend::Memory;
/// use tollgate::clock::TokioClock;
/// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
///
/// static SCANS: Limit = Limit::new("scans", Quota::token_bucket(1, HOUR));
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), RateLimited> {
/// let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
/// let start = Instant::now();
/// for _ in 0..3 {
///     let _permit = limiter.limit(&SCANS).reserve().await?.ready().await;
/// }
/// assert_eq!(start.elapsed(), 2 * HOUR);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    anchor: Timestamp,
}

impl TokioClock {
    /// Anchors a clock at the machine's time.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now(), anchor: machine_time() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.anchor + self.origin.elapsed()
    }
}

/// A clock that a test sets. Clones share one time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Timestamp;
/// use tollgate::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new(Timestamp::from_micros(1_000_000));
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now(), Timestamp::from_micros(3_000_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    micros: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { micros: Arc::new(AtomicI64::new(now.as_micros())) }
    }

    /// Advances the time by `by`, rounded down to the microsecond.
    pub fn advance(&self, by: Duration) {
        let forward = |now| Some((Timestamp::from_micros(now) + by).as_micros());
        // The closure never declines, so there is no failure to handle.
        // An update and not a load and a store: if two threads advance the clock, both advances
        // count.
        let _ = self.micros.fetch_update(Ordering::SeqCst, Ordering::SeqCst, forward);
    }

    /// Sets the time to `now`, which may be earlier than before.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A clock whose machine can be set.
    #[derive(Clone, Debug, Default)]
    struct Followed {
        passed: ManualClock,
        set: Arc<AtomicI64>,
    }

    impl Clock for Followed {
        fn now(&self) -> Timestamp {
            let set = self.set.load(Ordering::SeqCst);
            Timestamp::from_micros(self.passed.now().as_micros() + set)
        }

        fn monotonic(&self) -> Timestamp {
            self.passed.now()
        }
    }

    /// The distance to the floor was added to that by which the machine was set.
    #[test]
    fn a_clock_that_counts_on_from_a_floor_follows_the_machine_once_that_is_later() {
        const HOUR: i64 = 3_600_000_000;
        let machine = Followed::default();
        let clock = not_before(Arc::new(machine.clone()), Timestamp::from_micros(5 * HOUR));
        let now = |clock: &dyn Clock| clock.now().as_micros();
        machine.passed.set(Timestamp::from_micros(HOUR));
        assert_eq!(now(&clock), 6 * HOUR);
        machine.set.store(3 * HOUR, Ordering::SeqCst);
        assert_eq!(now(&clock), 6 * HOUR);
        machine.set.store(7 * HOUR, Ordering::SeqCst);
        assert_eq!(now(&clock), 8 * HOUR);
        // A floor that is reached already is none.
        let clock = not_before(Arc::new(machine), Timestamp::from_micros(8 * HOUR));
        assert_eq!(now(&clock), 8 * HOUR);
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        for _ in 0..100_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let elsewhere = thread::spawn(move || clock.now()).join().unwrap();
        assert!(elsewhere >= last);
    }
}
