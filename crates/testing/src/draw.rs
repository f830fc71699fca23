//! The values that a strategy draws, which are all that a property checks.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// The same values every time.
pub fn draw<S: Strategy>(strategy: &S, count: usize) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}
