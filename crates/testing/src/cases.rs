//! How many cases a test plays.

use std::ops::Range;

use proptest::test_runner::Config;

/// The seeds of a test that plays `usual` of them: `PROPTEST_CASES` asks for more or fewer, as it
/// does for properties. They have 256 cases by themselves, so 2,048 means eight times as many.
pub fn seeds(usual: u64) -> Range<u64> {
    let cases = u64::from(Config::default().cases);
    0..usual.saturating_mul(cases).div_ceil(256).max(1)
}

/// How often a test does what takes long: `all` times with the 2,048 cases that CI plays, and with
/// fewer cases in proportion, but `least` times, with which the test still fails as its comment
/// says.
pub fn times(all: u64, least: u64) -> u64 {
    let cases = u64::from(Config::default().cases);
    (all.saturating_mul(cases) / 2_048).clamp(least, all)
}
