//! Tests that hold for every store, with the random calls of the conformance suite.

#[cfg(all(feature = "calendar", any(feature = "redis", feature = "postgres")))]
pub(super) mod calendars;
pub(super) mod faulty;
pub(super) mod history;
mod records;

pub(super) use super::conformance::dice::Dice;
use crate::clock::Timestamp;

/// An instant in 2100, so that nothing expires by the time of a real server.
pub(super) const START: Timestamp = Timestamp::from_micros(4_102_444_800_123_456);
