//! A slot: an instant at which reserved work may run, and what was taken for it.

use std::cmp::Reverse;

use super::unit_vec::{StateVec, UnitVec};
use crate::algebra::{Bucket, State, Units};
use crate::clock::Timestamp;

/// Where a reservation stands among all reservations on its bucket: in the order in which the
/// bucket granted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotKey {
    at: Timestamp,
    /// What is left of the gain of all buckets at that instant. Of two reservations for the same
    /// instant the later one finds less.
    slack: Reverse<Units>,
    /// Tells those apart that are equal in all of that.
    number: u64,
}

impl SlotKey {
    /// Before all others.
    pub(super) const FIRST: Self =
        Self { at: Timestamp::from_micros(i64::MIN), slack: Reverse(Units::MAX), number: 0 };
    /// After all others.
    pub(super) const LAST: Self =
        Self { at: Timestamp::from_micros(i64::MAX), slack: Reverse(Units::MIN), number: u64::MAX };

    /// The order of the reservation which `left` this in its buckets and waits until `at`.
    pub(super) fn new<'b>(
        left: impl Iterator<Item = (&'b Bucket, State)>,
        at: Timestamp,
        number: u64,
    ) -> Self {
        let slack = left.map(|(bucket, left)| bucket.uncapped(left, at));
        Self { at, slack: Reverse(slack.fold(0, Units::saturating_add)), number }
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// What comes next after this.
    pub(super) const fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }

    /// No reservation for the same instant comes after this.
    pub(super) const fn last_of_its_instant(self) -> Self {
        Self { at: self.at, ..Self::LAST }
    }

    /// The instant, as the store counts time.
    pub(crate) const fn at(&self) -> Timestamp {
        self.at
    }
}

/// A slot, and where it stands among the others.
#[derive(Clone, Debug)]
pub(crate) struct TimeSlot {
    pub(super) order: SlotKey,
    pub(super) grant: SlotGrant,
}

/// What was granted, and can be used by one waiter.
#[derive(Clone, Debug)]
pub(crate) struct SlotGrant {
    /// What its waiter needs: what was taken, or less once it was handed on.
    pub(super) used: UnitVec,
    /// What the reservation took.
    pub(super) taken: UnitVec,
    /// What the reservation left in its buckets.
    pub(super) left: StateVec,
}
