//! A slot: an instant at which reserved work may run, and what was taken for it.

use std::cmp::Reverse;
use std::thread::ThreadId;

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
    /// The order of the reservation which `left` this in its buckets and waits until `at`.
    pub(super) fn new<'b>(
        after: impl Iterator<Item = (&'b Bucket, State)>,
        at: Timestamp,
        number: u64,
    ) -> Self {
        let slack = after.map(|(bucket, after)| bucket.uncapped(after, at));
        Self { at, slack: Reverse(slack.fold(0, Units::saturating_add)), number }
    }

    /// The instant, as the store counts time.
    pub(crate) const fn at(&self) -> Timestamp {
        self.at
    }
}

/// When the store did something for this process: made a reservation, returned units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreEvent {
    pub(super) at: Timestamp,
    /// The order in which this process heard of it.
    pub(super) number: u64,
    /// Which thread heard it. Of what was answered late, the order says nothing.
    pub(super) thread: Option<ThreadId>,
}

impl StoreEvent {
    /// Whether this certainly came before another event on the same bucket.
    ///
    /// A store may do several things within a microsecond. Where it answers at once, the order
    /// within a thread is that of the calls; all else that has the same time may have come after.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        let called_before = self.thread.is_some() && self.thread == other.thread;
        self.at < other.at || (self.at == other.at && called_before && self.number < other.number)
    }
}

/// A slot, and where it stands among the others.
#[derive(Clone, Debug)]
pub(crate) struct TimeSlot {
    pub(super) key: SlotKey,
    pub(super) grant: SlotGrant,
}

impl TimeSlot {
    pub(super) const fn creation_key(&self) -> CreationKey {
        (self.grant.made.at, self.key)
    }
}

/// Sorts slots by when they were made. Of those that were made at once, the later one is for a
/// later instant.
pub(super) type CreationKey = (Timestamp, SlotKey);

/// What was granted, and can be used by one waiter.
#[derive(Clone, Debug)]
pub(crate) struct SlotGrant {
    /// What the reservation took. A smaller waiter may use it.
    pub(super) taken: UnitVec,
    /// What the reservation left in its buckets.
    pub(super) after: StateVec,
    pub(super) made: StoreEvent,
}
