//! When requests come: at random, and independently of each other.

use std::time::Duration;

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above zero, and at most one.
    fn part(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// A Poisson process: the times after the start at which requests come.
pub struct Arrivals {
    random: Random,
    /// Seconds between two requests, on average.
    gap: f64,
    at: f64,
}

impl Arrivals {
    pub fn new(seed: u64, per_second: f64) -> Self {
        Self { random: Random(seed), gap: 1.0 / per_second, at: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.at -= self.gap * self.random.part().ln();
        Some(Duration::from_secs_f64(self.at))
    }
}
