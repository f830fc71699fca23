//! The waiters of one cost, and their slots.

use std::collections::BTreeMap;
use std::task::Waker;

use super::local_instant::LocalInstant;
use super::time_slot::{SlotGrant, SlotKey, TimeSlot};
use super::unit_vec::UnitVec;

/// Names a class among all of a queue, which are sorted by cost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassId {
    pub(super) cost: UnitVec,
    /// Zero for the class of nearly all waiters of this cost. Those that find no room there make
    /// another one, which the number of the first of them names.
    overflow: u64,
}

impl ClassId {
    /// The class of nearly all waiters of a cost.
    pub(super) const fn main(cost: UnitVec) -> Self {
        Self { cost, overflow: 0 }
    }

    /// A class that this waiter begins.
    pub(super) const fn overflow(cost: UnitVec, number: u64) -> Self {
        Self { cost, overflow: number.saturating_add(1) }
    }

    /// No class that costs as much, or less, comes after this.
    pub(super) const fn last(cost: UnitVec) -> Self {
        Self { cost, overflow: u64::MAX }
    }
}

/// As many waiters as slots, both in order: the first waiter has the first slot, the second the
/// second, and so on. When a waiter leaves, all behind it have moved forward by one without being
/// touched, and the last slot is free.
///
/// Waiters stand in the order in which they came. Only where units were returned is the slot of a
/// newcomer before those of others; it stands before them then, as it was told that slot's instant.
#[derive(Debug, Default)]
pub(super) struct CostClass {
    /// By labels, which leave room between two waiters for a newcomer.
    pub(super) waiters: BTreeMap<i64, Waiter>,
    pub(super) slots: BTreeMap<SlotKey, SlotGrant>,
    last: i64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) waker: Option<Waker>,
    /// When its timer wakes it.
    pub(super) alarm: LocalInstant,
    /// Whether it can be sent away.
    pub(super) drainable: bool,
}

/// How far apart labels are.
const GAP: i64 = 1 << 24;

/// How many waiters of its cost a newcomer comes before at most, as they have to be counted.
const MAX_BEHIND: usize = 64;

impl CostClass {
    /// The label of the first waiter of a class.
    pub(super) const FIRST: i64 = GAP;

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.slots.is_empty()
    }

    /// Where a waiter with a slot of this order stands. None if there is no room for it: too many
    /// are behind it, or there is no label left between two.
    pub(super) fn label_for(&self, order: SlotKey) -> Option<i64> {
        let behind = self.slots.range(order..).take(MAX_BEHIND.saturating_add(1)).count();
        let mut back = self.waiters.keys().rev().copied();
        let Some(nth) = behind.checked_sub(1) else {
            return self.last.checked_add(GAP);
        };
        let next = back.nth(nth).filter(|_| behind <= MAX_BEHIND)?;
        let before = back.next().unwrap_or_else(|| next.saturating_sub(GAP.saturating_mul(2)));
        let label = before.midpoint(next);
        (label > before && label < next).then_some(label)
    }

    /// Lets a waiter in with its slot.
    pub(super) fn enter(&mut self, label: i64, slot: TimeSlot, waiter: Waiter) {
        self.last = self.last.max(label);
        self.waiters.insert(label, waiter);
        self.slots.insert(slot.key, slot.grant);
    }

    /// Gives the waiters a slot, and takes the last of theirs in place of it.
    pub(super) fn exchange(&mut self, slot: TimeSlot) -> Option<TimeSlot> {
        self.slots.insert(slot.key, slot.grant);
        self.last_slot()
    }

    /// Takes the last slot out.
    pub(super) fn last_slot(&mut self) -> Option<TimeSlot> {
        self.slots.pop_last().map(|(key, grant)| TimeSlot { key, grant })
    }

    /// Takes the first waiter and the first slot out.
    pub(super) fn first(&mut self) -> Option<(Waiter, TimeSlot)> {
        let (_, waiter) = self.waiters.pop_first()?;
        let (key, grant) = self.slots.pop_first()?;
        Some((waiter, TimeSlot { key, grant }))
    }

    /// The slot of a waiter that has just come in.
    pub(super) fn slot_of(&self, label: i64) -> Option<SlotKey> {
        let behind = self.waiters.range(label..).skip(1).count();
        self.slots.keys().rev().nth(behind).copied()
    }

    /// The waiters with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Waiter, &SlotKey)> {
        self.waiters.values().zip(self.slots.keys())
    }
}
