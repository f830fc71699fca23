//! The end of a wait without a turn.

/// The limiter is closing, and the turn would come too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained;
