//! What was let run when, and how far that is above the bound.

use crate::terms::LeaseTerms;
use tollgate::algebra::{Bucket, Units};
use tollgate::clock::Timestamp;

/// What happened in each tick, for the checker.
pub(super) struct Journal {
    bucket: Bucket,
    life: u64,
    /// What a reset gives at most, as without leasing: what the limit saves up.
    refill: Units,
    pub(super) begun: Timestamp,
    ticks: Vec<Tick>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Tick {
    /// What was let run, less what was given back.
    run: Units,
    pub(super) resets: Units,
}

impl Journal {
    pub(super) fn new(bucket: &Bucket, terms: &LeaseTerms, begun: Timestamp) -> Self {
        // What a window has got by a reset is there until it ends.
        let life = if terms.is_window() { bucket.step() } else { terms.life() };
        let refill = terms.limit().capacity();
        Self { bucket: *bucket, life, refill, begun, ticks: Vec::new() }
    }

    /// The entry of now; `None` before the journal begins.
    pub(super) fn tick(&mut self, now: Timestamp) -> Option<&mut Tick> {
        let nth = usize::try_from(now.as_micros() - self.begun.as_micros()).ok()?;
        self.ticks.resize(self.ticks.len().max(nth + 1), Tick::default());
        self.ticks.get_mut(nth)
    }

    pub(super) fn run(&mut self, units: Units, now: Timestamp) {
        self.tick(now).into_iter().for_each(|tick| tick.run += units);
    }

    pub(super) fn forgive(&mut self, units: Units, now: Timestamp) {
        self.run(-units, now);
    }

    /// By how much the worst window is above the bound: the capacity and what is gained, and once
    /// more the capacity for each reset in the window or up to a life before it.
    pub(super) fn worst(&self) -> i64 {
        let gain = self.bucket.gain() as i64;
        let start = Bucket::absent(&self.bucket, self.begun, Timestamp::UNIX_EPOCH).ts;
        let phase = (self.begun.as_micros() - start.as_micros()) as u64;
        let period = |nth: usize| ((phase + nth as u64) / self.bucket.step()) as i64;
        let mut worst = i64::MIN;
        for first in 0..self.ticks.len() {
            let before = first.saturating_sub(self.life as usize - 1);
            let mut resets: i64 = self.ticks[before..first].iter().map(|tick| tick.resets).sum();
            let (mut run, before) = (0, period(first));
            for (nth, tick) in self.ticks.iter().enumerate().skip(first) {
                run += tick.run;
                resets += tick.resets;
                let gained = (period(nth) - before) * gain;
                let bound = self.bucket.capacity() + gained + resets * self.refill;
                worst = worst.max(run - bound);
            }
        }
        worst
    }
}
