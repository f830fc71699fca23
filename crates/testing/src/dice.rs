//! Numbers that look random, and are the same in each run: a failure names the seed that shows it
//! again.

use std::time::Duration;

/// Dice, by the seed of their next number.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn below(&mut self, sides: u64) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    /// A whole number of microseconds below this.
    pub fn time(&mut self, below: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(below.as_micros()).unwrap()))
    }

    /// The place of one of these.
    pub fn nth<T>(&mut self, of: &[T]) -> usize {
        usize::try_from(self.below(of.len() as u64)).unwrap()
    }
}
