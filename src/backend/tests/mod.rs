//! Tests that hold for every store, with the random calls of the conformance suite.

pub(super) mod faulty;
mod records;

pub(super) use super::conformance::dice::Dice;
pub(super) use super::conformance::history::{self, START};
