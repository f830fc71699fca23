//! The waiters of one queue and their slots: a data structure without clock, lock or future.
//!
//! # Design
//!
//! Waiters of one cost are a [`CostClass`]. A free slot goes to the class with the largest cost
//! that fits, if one of its waiters then runs earlier. A smaller cost would waste the rest of the
//! slot. The class gives up its last slot in return. That one lies behind the free one, so a slot
//! passes through each class at most once, and through a [bounded](super::reassign) number of them.
//!
//! An example, with waiters in the order of their slots, as `name(cost) instant`:
//!
//! ```text
//! A(2) 2 s   B(1) 3 s   C(2) 5 s   D(1) 6 s      A leaves
//! C(2) 2 s   B(1) 3 s              D(1) 6 s      its class moves forward; the slot at 5 s is free
//! C(2) 2 s   B(1) 3 s   D(1) 5 s                 class 1 takes it, and its slot at 6 s is free
//! ```
//!
//! The slot at 5 s was made for a cost of 2. It keeps these 2 units, so that all of them come back
//! if it is undone later.
//!
//! What one waiter does takes a bounded number of steps, each in a map. Two operations visit many
//! waiters, each of them once: granting those that are due, and draining.
//!
//! The caller supplies the time, wakes the [`Wakers`] after it has released the lock, and asks the
//! store to undo the slots that are left over.

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

/// How many overflow classes of its cost a newcomer looks at before it begins another one.
const MAX_OVERFLOW_LOOKS: usize = 8;

/// The waiters of one set of buckets, and their slots.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) classes: BTreeMap<ClassId, CostClass>,
    /// The slots of all classes, each with the class that has it.
    pub(super) slots: BTreeMap<SlotKey, ClassId>,
    /// The waiters by number, each with its class and its label there.
    pub(super) waiting: HashMap<u64, (ClassId, i64)>,
    /// The waiters that have their turn but do not run yet, by number.
    pub(super) granted: BTreeMap<u64, WaiterGrant>,
    pub(super) free: FreeSlots,
    /// Converts the instants of all slots to the clock of this process.
    pub(super) clock: StoreClock,
    /// How many waiters have left since one entered the empty queue.
    leavers: u64,
}

/// What a waiter holds from its turn until its work runs.
#[derive(Debug)]
pub(super) struct WaiterGrant {
    /// When its work may run, by the store's clock.
    pub(super) at: Timestamp,
    /// What its buckets held after its slot was reserved.
    pub(super) after: StateVec,
    pub(super) source: GrantSource,
}

/// The units that the work of a waiter uses.
#[derive(Debug)]
pub(super) enum GrantSource {
    /// Those of its slot, which is due.
    Slot(TimeSlot),
    /// Units that another request has returned to the buckets.
    Returned(UnitVec),
}

/// Identifies a waiter, wherever in the queue it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaiterId {
    pub(super) number: u64,
    /// The instant that the waiter was told, by the store's clock. It never runs later.
    pub(super) promised: Timestamp,
}

/// How many requests wait, for how long, and how many have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitStatus<T> {
    pub(crate) waiting: usize,
    /// Until when the last of them waits; `None` if none does.
    pub(crate) until: Option<T>,
    /// How many have left before their turn since one entered the empty queue.
    pub(crate) leavers: u64,
}

impl WaitQueue {
    /// Whether the queue has no waiter, and asks the store for no undo.
    ///
    /// Free slots do not count: they alone do not keep a queue in memory.
    pub(super) fn is_empty(&self) -> bool {
        // A queue that asks for an undo is kept: the answer puts the slot back into this queue,
        // where a newcomer has to find it.
        let waits = !self.waiting.is_empty() || !self.granted.is_empty();
        !waits && !self.free.is_undoing()
    }

    pub(super) fn status(&self) -> WaitStatus<LocalInstant> {
        let until = self.slots.last_key_value().map(|(last, _)| self.due(*last));
        WaitStatus { waiting: self.waiting.len(), until, leavers: self.leavers }
    }

    /// Adds a waiter with the slot that it has reserved. Returns when its turn comes if no other
    /// waiter leaves.
    ///
    /// If a free slot before its own fits, the waiter takes that one, and its own is reassigned.
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
        // Its own slot first, although a free one may be better: the exchange below needs a class
        // with as many slots as waiters.
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

    /// The class for a waiter with the slot `own`, and the label of the waiter in that class.
    ///
    /// That is the main class of its cost if it has room at that position, or else an overflow
    /// class of the same cost, or a new one.
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

    /// Removes a waiter that was dropped. Returns the units to give back, if it was granted
    /// units that another request had returned.
    pub(super) fn leave(
        &mut self,
        id: WaiterId,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> Option<UnitVec> {
        // First, so that a waiter whose instant has come gives up a slot that is due, and not its
        // place in line: the two are handed on by different rules.
        self.grant_due(now, Some(id.number), wakers);
        // A drained waiter is neither granted nor waiting: it was counted when it was removed.
        if let Some(granted) = self.take_granted(id) {
            self.leavers = self.leavers.saturating_add(1);
            match granted.source {
                // Not reassigned: the work of another waiter would run later than the instant for
                // which the store granted these units, beside the work of that later time.
                GrantSource::Slot(slot) => self.free.add(slot),
                GrantSource::Returned(units) => return Some(units),
            }
        } else if let Some((class, label)) = self.waiting.remove(&id.number) {
            self.leavers = self.leavers.saturating_add(1);
            let gone = self.classes.get_mut(&class).and_then(|class| class.waiters.remove(&label));
            wakers.discard.extend(gone.and_then(|waiter| waiter.waker));
            self.reassign_last(&class, &mut ReassignBudget::default());
        }
        // Those that moved forward may now be the first two, and their timers are set to later
        // instants.
        self.wake_next(wakers);
        None
    }

    /// Offers a slot that was never waited for to the waiters behind it.
    pub(super) fn offer(&mut self, slot: TimeSlot, now: LocalInstant, wakers: &mut Wakers) {
        self.grant_due(now, None, wakers);
        // A slot in the past can only be undone: see `leave`.
        match self.due(slot.key) > now {
            true => self.reassign(slot, true, &mut ReassignBudget::default()),
            false => self.free.add(slot),
        }
        self.wake_next(wakers);
    }

    /// Takes out the next free slot that the store should undo; `None` if there is none to try.
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
            // A waiter has a slot that was made later, so the bucket was charged after this one:
            // the store would refuse.
            self.offer_again(slot, now, &mut budget, wakers);
        }
        None
    }

    /// Records that the store refused to undo a slot, and offers it to the waiters behind it.
    pub(super) fn record_refusal(
        &mut self,
        slot: TimeSlot,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) {
        self.offer_again(slot, now, &mut ReassignBudget::default(), wakers);
    }

    /// Reassigns free slots, since neither `slot` nor those made before it can be undone for now.
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
        // By their instants and not by their creation: the waiters take the earliest first.
        offered.sort_unstable_by_key(|slot| slot.key);
        for slot in offered {
            self.reassign(slot, false, budget);
        }
        self.wake_next(wakers);
    }

    /// Removes the drainable waiters that would run after `end`, and wakes them. Waiters
    /// that are due are granted first.
    pub(super) fn drain(&mut self, end: LocalInstant, now: LocalInstant, wakers: &mut Wakers) {
        self.grant_due(now, None, wakers);
        let mut late = Vec::new();
        for (waiter, slot) in self.classes.values().flat_map(CostClass::iter) {
            if waiter.drainable && self.due(*slot) > end {
                late.push((*slot, waiter.number));
            }
        }
        // From the last slot to the first, so that no waiter is moved forward that is drained
        // itself.
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

    /// The instant of a slot, by the clock of this process.
    pub(super) fn due(&self, slot: SlotKey) -> LocalInstant {
        self.clock.instant_of(slot.at())
    }
}
