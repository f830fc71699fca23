//! Random numbers for jitter and shards: good enough to spread clients, and no dependency.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood 2014); its clones draw from one sequence.
///
/// The state is a counter, so that threads share it by one atomic addition.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: Arc<AtomicU64>,
}

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: Arc::new(AtomicU64::new(seed)) }
    }

    /// Goes on from this seed, for all clones.
    pub(super) fn reseed(&self, seed: u64) {
        self.state.store(seed, Ordering::Relaxed);
    }

    /// A duration from zero to `most`, both included.
    pub(crate) fn up_to(&self, most: Duration) -> Duration {
        if most.is_zero() {
            return most;
        }
        // Five centuries of jitter are as good as more.
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        // The upper half of the product is uniform in 0..=most, but for one part in 2^64 / most.
        let product = u128::from(self.next()).saturating_mul(u128::from(most).saturating_add(1));
        Duration::from_nanos(u64::try_from(product >> 64).unwrap_or(most))
    }

    /// Two different numbers below `count`, each pair in each order as likely as any other; twice
    /// the same if there is only one.
    pub(super) fn draw_pair(&self, count: u32) -> [u32; 2] {
        let drawn = self.next();
        let first = scale(drawn >> 32, count);
        // Any but the first, counted from behind it.
        let ahead = scale(drawn & u64::from(u32::MAX), count.saturating_sub(1)).saturating_add(1);
        let second = u64::from(first).saturating_add(u64::from(ahead));
        let second = second.checked_rem(u64::from(count)).unwrap_or(0);
        [first, u32::try_from(second).unwrap_or(0)]
    }

    /// Each number is as likely as any other.
    pub(crate) fn next(&self) -> u64 {
        let before = self.state.fetch_add(GAMMA, Ordering::Relaxed);
        let z = before.wrapping_add(GAMMA);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Maps 32 random bits evenly onto `0..count`.
fn scale(bits: u64, count: u32) -> u32 {
    u32::try_from(bits.saturating_mul(u64::from(count)) >> 32).unwrap_or(0)
}

/// Seeded by the standard library, whose hashers have random keys.
impl Default for Random {
    fn default() -> Self {
        Self::seeded(RandomState::new().hash_one(()))
    }
}

/// 2^64 divided by the golden ratio, made odd; it and the two multipliers are the paper's.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
