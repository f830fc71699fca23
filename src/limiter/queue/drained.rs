//! The error of a waiter that a drain removes.

/// The limiter was drained, and the turn of this waiter would have come too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained;
