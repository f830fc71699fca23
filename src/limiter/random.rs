//! Random numbers for jitter and shards: good enough to spread clients, without a dependency.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood 2014). All clones draw from one sequence.
///
/// Its state is a counter, so threads share it with one atomic addition.
#[derive(Clone, Debug)]
pub struct Random {
    state: Arc<AtomicU64>,
}

impl Random {
    /// Random numbers that are the same for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: Arc::new(AtomicU64::new(seed)) }
    }

    /// Continues from this seed, for all clones.
    pub(super) fn reseed(&self, seed: u64) {
        self.state.store(seed, Ordering::Relaxed);
    }

    /// A random duration from zero to `most`, both included.
    #[must_use]
    pub fn up_to(&self, most: Duration) -> Duration {
        if most.is_zero() {
            return most;
        }
        // 2^64 nanoseconds are five centuries.
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        // The upper half of the product is uniform in 0..=most, up to an error of most / 2^64.
        let product = u128::from(self.next()).saturating_mul(u128::from(most).saturating_add(1));
        Duration::from_nanos(u64::try_from(product >> 64).unwrap_or(most))
    }

    /// Two different numbers below `count`. All ordered pairs are equally likely. If `count` is
    /// one, both are zero.
    pub(super) fn draw_pair(&self, count: u32) -> [u32; 2] {
        let drawn = self.next();
        let first = scale(drawn >> 32, count);
        // A distance of 1 to `count - 1` from the first, so it is never the first itself.
        let ahead = scale(drawn & u64::from(u32::MAX), count.saturating_sub(1)).saturating_add(1);
        let second = u64::from(first).saturating_add(u64::from(ahead));
        let second = second.checked_rem(u64::from(count)).unwrap_or(0);
        [first, u32::try_from(second).unwrap_or(0)]
    }

    /// The next number. All are equally likely.
    pub(crate) fn next(&self) -> u64 {
        let before = self.state.fetch_add(GAMMA, Ordering::Relaxed);
        let z = before.wrapping_add(GAMMA);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Maps 32 random bits evenly to `0..count`.
fn scale(bits: u64, count: u32) -> u32 {
    u32::try_from(bits.saturating_mul(u64::from(count)) >> 32).unwrap_or(0)
}

/// Seeds it from the standard library, which gives its hashers random keys.
impl Default for Random {
    fn default() -> Self {
        Self::seeded(RandomState::new().hash_one(()))
    }
}

/// 2^64 divided by the golden ratio, made odd. This and the two multipliers are from the paper.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A duration in nanoseconds, which takes half the space.
pub(super) const fn nanos(spread: Duration) -> u64 {
    let nanos = spread.as_secs().saturating_mul(1_000_000_000);
    // `u64::from` is not const.
    let [a, b, c, d] = spread.subsec_nanos().to_le_bytes();
    nanos.saturating_add(u64::from_le_bytes([a, b, c, d, 0, 0, 0, 0]))
}
