//! The counter of this processor.

use super::counter::CounterSource;
use super::machine::Nanos;

/// The counter of this processor, and the clock that it is checked against.
#[derive(Debug)]
pub(super) struct Processor<C> {
    counter: quanta::Clock,
    clock: C,
}

impl<C> Processor<C> {
    /// Measures the rate of the counter, if this is the first call in the process. That takes at
    /// most a fifth of a second.
    pub(super) fn new(clock: C) -> Self {
        Self { counter: quanta::Clock::new(), clock }
    }
}

impl<C: Nanos> CounterSource for Processor<C> {
    #[inline]
    fn count(&self) -> u64 {
        self.counter.raw()
    }

    #[inline]
    fn nanos_between(&self, from: u64, to: u64) -> u64 {
        self.counter.delta_as_nanos(from, to)
    }

    fn system_nanos(&self) -> u64 {
        self.clock.nanos()
    }
}
