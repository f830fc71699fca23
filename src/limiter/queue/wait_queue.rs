//! The waiters on some buckets, and the slots that they wait for.
//!
//! # Design
//!
//! Waiters of one cost are a [`CostClass`]. A slot that is free goes to the largest cost that fits in
//! it, of a waiter that it makes run earlier: with a smaller one, what is left of the slot
//! would be of no use. The last slot of that class is free in turn, and lies behind; so the slot is
//! handed on once to a class at most, and to a [bounded](super::reassign) number of them.
//!
//! Whatever one waiter does takes a bounded number of steps, each in a map. What concerns many of
//! them is done once for each: to grant those that are due, and to drain.
//!
//! There is no clock, no lock and no future here; the callers bring the time, wake the waiters
//! that they are told to, and try to undo the slots that are left over.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::cost_class::{ClassId, CostClass, Waiter};
use super::free_slots::FreeSlots;
use super::local_instant::{LocalInstant, StoreClock};
use super::reassign_budget::ReassignBudget;
use super::time_slot::{SlotKey, TimeSlot};
use super::unit_vec::{StateVec, UnitVec};
use super::wakers::Wakers;
use crate::clock::Timestamp;

/// How many classes of its cost a newcomer looks at beside the main one.
const MAX_OVERFLOW_LOOKS: usize = 8;

/// Waiters and slots.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) classes: BTreeMap<ClassId, CostClass>,
    /// The slots of all waiters, with the class that each is in.
    pub(super) slots: BTreeMap<SlotKey, ClassId>,
    /// The waiters by their numbers, with class and label.
    pub(super) waiting: HashMap<u64, (ClassId, i64)>,
    /// The waiters whose instant has come and whose work does not run yet.
    pub(super) granted: BTreeMap<u64, WaiterGrant>,
    pub(super) free: FreeSlots,
    /// By which the instants of all slots are told.
    pub(super) clock: StoreClock,
    /// How many have left since no waiter was here.
    leavers: u64,
}

/// What a waiter was granted.
#[derive(Debug)]
pub(super) struct WaiterGrant {
    /// When its work may run, as the store counts time.
    pub(super) at: Timestamp,
    /// What the reservation of its slot left in the buckets.
    pub(super) after: StateVec,
    pub(super) source: GrantSource,
}

/// What it runs with.
#[derive(Debug)]
pub(super) enum GrantSource {
    Slot(TimeSlot),
    /// Units that were returned to its buckets.
    Returned(UnitVec),
}

/// What a waiter knows of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaiterId {
    pub(super) number: u64,
    /// The instant that it was told, as the store counts time.
    pub(super) promised: Timestamp,
}

/// How many wait, for how long, and how many have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitStatus<T> {
    pub(crate) waiting: usize,
    /// Until when the last of them waits.
    pub(crate) until: Option<T>,
    /// Since the queue was last empty.
    pub(crate) leavers: u64,
}

impl WaitQueue {
    /// Whether nothing is left to be done.
    pub(super) fn is_empty(&self) -> bool {
        let waits = !self.waiting.is_empty() || !self.granted.is_empty();
        !waits && !self.free.is_undoing()
    }

    pub(super) fn status(&self) -> WaitStatus<LocalInstant> {
        let until = self.slots.last_key_value().map(|(last, _)| self.due(*last));
        WaitStatus { waiting: self.waiting.len(), until, leavers: self.leavers }
    }

    /// Lets a waiter in, with the slot that it has reserved. Says when its turn comes, if no other
    /// leaves.
    pub(super) fn enter(
        &mut self,
        slot: TimeSlot,
        drainable: bool,
        now: LocalInstant,
    ) -> (WaiterId, LocalInstant) {
        if self.waiting.is_empty() {
            self.leavers = 0;
        }
        let (own, cost, number) = (slot.key, slot.grant.taken.clone(), slot.grant.made.number);
        let waiter = Waiter { number, waker: None, alarm: self.due(own), drainable };
        let (id, label) = self.class_for(own, &cost, number);
        self.slots.insert(own, id.clone());
        self.waiting.insert(number, (id.clone(), label));
        self.classes.entry(id.clone()).or_default().enter(label, slot, waiter);
        if let Some(free) = self.free.take_before(own, &cost, &self.clock, now)
            && let Some(rest) = self.exchange(free, &id)
        {
            self.reassign(rest, true, &mut ReassignBudget::default());
        }
        let turn = self.classes.get(&id).and_then(|class| class.slot_of(label)).unwrap_or(own);
        (WaiterId { number, promised: own.at() }, self.due(turn))
    }

    /// The class in which a waiter with this slot stands, and its label there. Where it finds no room
    /// in the main class of its cost, it joins those that found none either.
    fn class_for(&self, own: SlotKey, cost: &UnitVec, number: u64) -> (ClassId, i64) {
        let (main, last) = (ClassId::main(cost.clone()), ClassId::last(cost.clone()));
        let Some(class) = self.classes.get(&main) else { return (main, CostClass::FIRST) };
        if let Some(label) = class.label_for(own) {
            return (main, label);
        }
        let overflow = self.classes.range((Bound::Excluded(main), Bound::Included(last)));
        let mut with_room = overflow
            .rev()
            .take(MAX_OVERFLOW_LOOKS)
            .filter_map(|(id, class)| class.label_for(own).map(|label| (id.clone(), label)));
        with_room
            .next()
            .unwrap_or_else(|| (ClassId::overflow(cost.clone(), number), CostClass::FIRST))
    }

    /// Lets a waiter out that gives up. Returns the units that it was granted of those that were
    /// returned.
    pub(super) fn leave(
        &mut self,
        id: WaiterId,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> Option<UnitVec> {
        self.grant_due(now, Some(id.number), wakers);
        self.leavers = self.leavers.saturating_add(1);
        if let Some(granted) = self.take_granted(id) {
            match granted.source {
                // A slot whose instant has come is of no use to any other waiter: with it, work of
                // that instant would run at another.
                GrantSource::Slot(slot) => self.free.add(slot),
                GrantSource::Returned(units) => return Some(units),
            }
        } else if let Some((class, label)) = self.waiting.remove(&id.number) {
            let gone = self.classes.get_mut(&class).and_then(|class| class.waiters.remove(&label));
            wakers.discard.extend(gone.and_then(|waiter| waiter.waker));
            self.reassign_last(&class, &mut ReassignBudget::default());
        }
        self.wake_next(wakers);
        None
    }

    /// Offers a slot to those behind it.
    pub(super) fn offer(&mut self, slot: TimeSlot, now: LocalInstant, wakers: &mut Wakers) {
        self.grant_due(now, None, wakers);
        match self.due(slot.key) > now {
            true => self.reassign(slot, true, &mut ReassignBudget::default()),
            false => self.free.add(slot),
        }
        self.wake_next(wakers);
    }

    /// Takes the next slot out that the store is to be asked to undo.
    pub(super) fn next_to_undo(
        &mut self,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> Option<TimeSlot> {
        let mut budget = ReassignBudget::default();
        while let Some(slot) = self.free.next_to_undo() {
            if self.is_newest(&slot) {
                return Some(slot);
            }
            // The store would say no.
            self.offer_again(slot, now, &mut budget, wakers);
        }
        None
    }

    /// Hears that a slot could not be undone.
    pub(super) fn record_refusal(
        &mut self,
        slot: TimeSlot,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) {
        self.offer_again(slot, now, &mut ReassignBudget::default(), wakers);
    }

    /// Offers free slots to those behind them, as none is going to be undone.
    fn offer_again(
        &mut self,
        slot: TimeSlot,
        now: LocalInstant,
        budget: &mut ReassignBudget,
        wakers: &mut Wakers,
    ) {
        self.grant_due(now, None, wakers);
        let clock = &self.clock;
        let mut offered =
            self.free.record_refusal(slot, |slot| clock.instant_of(slot.key.at()) > now);
        offered.sort_unstable_by_key(|slot| slot.key);
        for slot in offered {
            self.reassign(slot, false, budget);
        }
        self.wake_next(wakers);
    }

    /// Sends the waiters away whose turn would come after `end`, and wakes those that wait although
    /// their turn has come.
    pub(super) fn drain(&mut self, end: LocalInstant, now: LocalInstant, wakers: &mut Wakers) {
        self.grant_due(now, None, wakers);
        let mut late = Vec::new();
        for (waiter, slot) in self.classes.values().flat_map(CostClass::iter) {
            if waiter.drainable && self.due(*slot) > end {
                late.push((*slot, waiter.number));
            }
        }
        late.sort_unstable_by_key(|(slot, _)| std::cmp::Reverse(*slot));
        let mut budget = ReassignBudget::default();
        for (_, number) in late {
            let Some((class, label)) = self.waiting.remove(&number) else { continue };
            let gone = self.classes.get_mut(&class).and_then(|class| class.waiters.remove(&label));
            wakers.wake.extend(gone.and_then(|waiter| waiter.waker));
            self.leavers = self.leavers.saturating_add(1);
            self.reassign_last(&class, &mut budget);
        }
        self.wake_next(wakers);
    }

    /// The instant of a slot, as this process counts time.
    pub(super) fn due(&self, slot: SlotKey) -> LocalInstant {
        self.clock.instant_of(slot.at())
    }
}
