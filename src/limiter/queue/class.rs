//! The waiters of one cost, and their slots.

use std::collections::BTreeMap;
use std::task::Waker;

use smallvec::SmallVec;

use super::local_instant::LocalInstant;
use super::time_slot::{SlotGrant, SlotKey, TimeSlot};

/// As many waiters as slots, both in order: the first waiter has the first slot, the second the
/// second, and so on. When a waiter leaves, all behind it have moved forward by one without being
/// touched, and the last slot is free.
///
/// Waiters stand in the order in which they came. Only where units were returned is the slot of a
/// newcomer before those of others; it stands before them then, as it was told that slot's instant.
#[derive(Debug, Default)]
pub(super) struct Class {
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

impl Class {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.slots.is_empty()
    }

    /// Lets a waiter in with its slot. Returns the numbers of the waiters whose labels are new: its
    /// own, or those of all.
    pub(super) fn enter(&mut self, slot: TimeSlot, waiter: Waiter) -> Labels {
        let number = waiter.number;
        let behind = self.slots.range(slot.order..).count();
        self.slots.insert(slot.order, slot.grant);
        let mut back = self.waiters.keys().rev().copied();
        let Some(next) = behind.checked_sub(1).and_then(|nth| back.nth(nth)) else {
            self.last = self.last.saturating_add(GAP);
            self.waiters.insert(self.last, waiter);
            return Labels::from([(number, self.last)]);
        };
        let before = back.next().unwrap_or_else(|| next.saturating_sub(GAP.saturating_mul(2)));
        let label = before.midpoint(next);
        if label > before && label < next {
            self.waiters.insert(label, waiter);
            return Labels::from([(number, label)]);
        }
        // There is no label left between the two.
        let place = self.waiters.len().saturating_sub(behind);
        let mut all: Vec<_> = std::mem::take(&mut self.waiters).into_values().collect();
        all.insert(place.min(all.len()), waiter);
        self.last = 0;
        for waiter in all {
            self.last = self.last.saturating_add(GAP);
            self.waiters.insert(self.last, waiter);
        }
        self.waiters.iter().map(|(label, waiter)| (waiter.number, *label)).collect()
    }

    /// Gives the waiters a slot, and takes the last of theirs in place of it.
    pub(super) fn exchange(&mut self, slot: TimeSlot) -> Option<TimeSlot> {
        self.slots.insert(slot.order, slot.grant);
        self.last_slot()
    }

    /// Takes the last slot out.
    pub(super) fn last_slot(&mut self) -> Option<TimeSlot> {
        self.slots.pop_last().map(|(order, grant)| TimeSlot { order, grant })
    }

    /// Takes the first waiter and the first slot out.
    pub(super) fn first(&mut self) -> Option<(Waiter, TimeSlot)> {
        let (_, waiter) = self.waiters.pop_first()?;
        let (order, grant) = self.slots.pop_first()?;
        Some((waiter, TimeSlot { order, grant }))
    }

    /// The slot of a waiter; quick for one of the last.
    pub(super) fn slot_of(&self, label: i64) -> Option<SlotKey> {
        let behind = self.waiters.range(label..).skip(1).count();
        self.slots.keys().rev().nth(behind).copied()
    }

    /// The waiters with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Waiter, &SlotKey)> {
        self.waiters.values().zip(self.slots.keys())
    }
}

/// Waiters by their numbers, and their labels.
type Labels = SmallVec<[(u64, i64); 1]>;
