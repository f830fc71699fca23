//! The waiters of one cost and their slots.
//!
//! # Design
//!
//! A class has two ordered maps, one of waiters and one of slots. The n-th waiter has the n-th
//! slot; nothing links the two. When the second of four waiters leaves, the last slot is taken out,
//! and all behind the leaver have moved forward without being touched:
//!
//! ```text
//! waiters  A B C D      B leaves      A C D
//! slots    1 2 3 4     --------->     1 2 3     slot 4 is free
//! ```

use std::collections::BTreeMap;
use std::task::Waker;

use super::local_instant::LocalInstant;
use super::time_slot::{SlotGrant, SlotKey, TimeSlot};
use super::unit_vec::UnitVec;

/// Identifies a class within a queue. Classes are sorted by cost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassId {
    pub(super) cost: UnitVec,
    /// Zero for the main class, which has nearly all waiters of this cost. A waiter that finds no
    /// position there begins an overflow class, which is identified by its number.
    overflow: u64,
}

impl ClassId {
    /// The main class of a cost.
    pub(super) const fn main(cost: UnitVec) -> Self {
        Self { cost, overflow: 0 }
    }

    /// The overflow class that this waiter begins.
    pub(super) const fn overflow(cost: UnitVec, number: u64) -> Self {
        Self { cost, overflow: number.saturating_add(1) }
    }

    /// The end of a range: no class of this cost comes after it.
    pub(super) const fn last(cost: UnitVec) -> Self {
        Self { cost, overflow: u64::MAX }
    }
}

/// The waiters of one cost and as many slots, both in order.
///
/// Waiters are in the order of their arrival, with one exception. After a return, the store may
/// reserve a slot for a newcomer that lies before the slots of waiters. The newcomer is then put
/// before these waiters, so that neither they nor it run later than they were told.
#[derive(Debug, Default)]
pub(super) struct CostClass {
    /// By label. Labels have gaps, so that a newcomer can be put between two waiters.
    pub(super) waiters: BTreeMap<i64, Waiter>,
    pub(super) slots: BTreeMap<SlotKey, SlotGrant>,
    last: i64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) waker: Option<Waker>,
    /// The instant of its timer.
    pub(super) alarm: LocalInstant,
    /// Whether a drain removes it.
    pub(super) drainable: bool,
}

/// The distance between the labels of two waiters. It can be halved 24 times.
const GAP: i64 = 1 << 24;

/// A newcomer is put before at most this many waiters of its cost, since they have to be counted.
const MAX_BEHIND: usize = 64;

impl CostClass {
    /// The label of the first waiter of a class.
    pub(super) const FIRST: i64 = GAP;

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.slots.is_empty()
    }

    /// The label for a waiter with a slot of this order.
    ///
    /// `None` if there is no position for it: more than `MAX_BEHIND` slots are behind it, or no
    /// label is left between its neighbours.
    pub(super) fn label_for(&self, order: SlotKey) -> Option<i64> {
        let behind = self.slots.range(order..).take(MAX_BEHIND.saturating_add(1)).count();
        // There are as many waiters as slots, so the first of the waiters to be put behind stands
        // `behind` places from the end.
        let mut back = self.waiters.keys().rev().copied();
        let Some(nth) = behind.checked_sub(1) else {
            // The usual case: the newcomer is the last. The labels last for 2^39 newcomers of a
            // class that is never empty; then `None` begins an overflow class.
            return self.last.checked_add(GAP);
        };
        let next = back.nth(nth).filter(|_| behind <= MAX_BEHIND)?;
        let before = back.next().unwrap_or_else(|| next.saturating_sub(GAP.saturating_mul(2)));
        let label = before.midpoint(next);
        // Both can fail: neighbours whose labels differ by one have no number between them. Two
        // waiters with one label would be one entry of the map, and the first would be lost.
        (label > before && label < next).then_some(label)
    }

    /// Adds a waiter and its slot.
    pub(super) fn enter(&mut self, label: i64, slot: TimeSlot, waiter: Waiter) {
        self.last = self.last.max(label);
        self.waiters.insert(label, waiter);
        self.slots.insert(slot.key, slot.grant);
    }

    /// Adds a slot and takes out the last one instead.
    pub(super) fn exchange(&mut self, slot: TimeSlot) -> Option<TimeSlot> {
        // Inserted first. If the new slot is the last one itself, it comes out again, and no waiter
        // gets a later slot than it had.
        self.slots.insert(slot.key, slot.grant);
        self.last_slot()
    }

    /// Takes out the last slot.
    pub(super) fn last_slot(&mut self) -> Option<TimeSlot> {
        self.slots.pop_last().map(|(key, grant)| TimeSlot { key, grant })
    }

    /// Takes out the first waiter and the first slot.
    pub(super) fn first(&mut self) -> Option<(Waiter, TimeSlot)> {
        // Both or none, so that the n-th waiter still has the n-th slot.
        let (_, waiter) = self.waiters.pop_first()?;
        let (key, grant) = self.slots.pop_first()?;
        Some((waiter, TimeSlot { key, grant }))
    }

    /// The slot of the waiter with this label. It counts from the end, where newcomers are.
    pub(super) fn slot_of(&self, label: i64) -> Option<SlotKey> {
        let behind = self.waiters.range(label..).skip(1).count();
        self.slots.keys().rev().nth(behind).copied()
    }

    /// Each waiter with its slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Waiter, &SlotKey)> {
        self.waiters.values().zip(self.slots.keys())
    }
}
