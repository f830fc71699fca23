//! A place: an instant at which reserved work may run, and what was taken for it.

use std::cmp::Reverse;

use tokio::time::Instant;

use crate::algebra::{Bucket, State, Units};
use crate::clock::Timestamp;

/// Where a reservation stands among all reservations on its bucket: in the order in which the
/// bucket granted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    at: Timestamp,
    /// What is left of the gain at that instant. Of two reservations for the same instant the
    /// later one finds less.
    slack: Reverse<Units>,
    /// Tells those apart that are equal in all of that.
    number: u64,
}

impl Order {
    /// The order of the reservation which `left` this in its bucket and waits until `at`.
    pub(super) fn new(bucket: &Bucket, left: State, at: Timestamp, number: u64) -> Self {
        Self { at, slack: Reverse(bucket.uncapped(left, at)), number }
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// No reservation for the same instant comes after this.
    pub(super) const fn last_of_its_instant(mut self) -> Self {
        (self.slack, self.number) = (Reverse(Units::MIN), u64::MAX);
        self
    }

    /// The instant, as the store counts time.
    pub(crate) const fn at(&self) -> Timestamp {
        self.at
    }
}

/// What was granted, and can be used by one waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(super) order: Order,
    /// The instant, as this process counts time.
    pub(super) due: Instant,
    /// What the reservation took; whoever it is handed to may need less.
    pub(super) units: Units,
    /// What the reservation left in its bucket.
    pub(super) left: State,
}
