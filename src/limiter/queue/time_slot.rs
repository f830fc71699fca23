//! A slot: an instant from which reserved work may run, and the units that the store took for it.

use std::cmp::Reverse;
use std::thread::ThreadId;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::algebra::{Bucket, State, Units};
use crate::backend::Reading;
use crate::clock::Timestamp;

/// The position of a slot among all slots of its queue: the order in which the buckets granted
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SlotKey {
    at: Timestamp,
    /// The gain of all buckets that is left at that instant. Of two slots for the same instant, the
    /// one that was reserved later has less.
    slack: Reverse<Units>,
    /// Breaks ties.
    number: u64,
}

impl SlotKey {
    /// The position of a reservation that waits until `at` and left the buckets at `after`.
    pub(super) fn new<'b>(
        after: impl Iterator<Item = (&'b Bucket, State)>,
        at: Timestamp,
        number: u64,
    ) -> Self {
        let slack = after.map(|(bucket, after)| bucket.uncapped(after, at));
        Self { at, slack: Reverse(slack.fold(0, Units::saturating_add)), number }
    }

    /// The instant, by the store's clock.
    pub(super) const fn at(&self) -> Timestamp {
        self.at
    }
}

/// When the store made a reservation or a return for this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreEvent {
    pub(super) at: Timestamp,
    /// The order in which this process received the answers.
    pub(super) number: u64,
    /// The thread that called, if the store answered at once. If it answered later, `number` does
    /// not tell which call it carried out first.
    pub(super) thread: Option<ThreadId>,
    /// When this process received the answer.
    pub(super) heard: Instant,
}

impl StoreEvent {
    /// Whether this certainly came before another event on the same bucket.
    ///
    /// A store can do several things within a microsecond. Of events at the same time, only those
    /// of one thread to which the store answered at once are in a known order, that of the calls.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        let called_before = self.thread.is_some() && self.thread == other.thread;
        self.at < other.at || (self.at == other.at && called_before && self.number < other.number)
    }
}

/// A slot. One waiter can use it, the one that reserved it or another.
#[derive(Clone, Debug)]
pub(super) struct TimeSlot {
    pub(super) key: SlotKey,
    /// What was taken from each bucket of the queue, in the order of the set; nearly always one.
    pub(super) taken: SmallVec<[Reading; 1]>,
    pub(super) made: StoreEvent,
    /// How often the store has refused to undo it while returns were pending: perhaps only because it
    /// had not carried out such a return yet.
    pub(super) retries: u8,
}

impl TimeSlot {
    pub(super) const fn creation_key(&self) -> CreationKey {
        (self.made.at, self.key)
    }

    pub(super) fn cost(&self) -> Cost {
        self.taken.iter().map(Reading::units).collect()
    }

    /// Whether a waiter of this cost can use it. A cost of zero would swallow a whole slot.
    pub(super) fn fits(&self, cost: &Cost) -> bool {
        let mut parts = self.taken.iter().zip(cost);
        parts.all(|(taken, units)| *units <= taken.units()) && cost.iter().any(|&units| units > 0)
    }
}

/// The units that work takes from each bucket of its queue, in the order of the set.
pub(super) type Cost = SmallVec<[Units; 1]>;

/// Sorts slots by when they were reserved. Of those that were reserved in the same microsecond, the
/// later one is for a later instant.
pub(super) type CreationKey = (Timestamp, SlotKey);
