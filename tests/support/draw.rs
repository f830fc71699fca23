//! What a strategy draws: a property says something only about that.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// The same values every time.
pub(crate) fn draw<S: Strategy>(strategy: &S, count: usize) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}
