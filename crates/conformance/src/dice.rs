//! Random numbers, the same in each run.

/// A random number generator with a seed, the same in each run.
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

    pub fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()].clone()
    }

    /// A number from 0 to `most`. Its length in bits is drawn first, so small numbers are as likely
    /// as large ones.
    pub fn up_to(&mut self, most: u64) -> u64 {
        let bits = 64 - most.leading_zeros();
        let bits = self.below(u64::from(bits) + 1);
        self.below(1_u64 << bits.min(63)).min(most)
    }
}
