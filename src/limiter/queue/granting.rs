//! How waiters get their turn: at the instants of their slots, or by returned units.
//!
//! A grant never waits for the waiter: it moves the waiter to [`WaitQueue::granted`] and wakes it.
//! So a waiter that is no longer polled delays no other.

use std::task::Waker;

use super::cost_class::{ClassId, Waiter};
use super::local_instant::LocalInstant;
use super::reassign_budget::ReassignBudget;
use super::time_slot::TimeSlot;
use super::unit_vec::{StateVec, UnitVec};
use super::wait_queue::{GrantSource, WaitQueue, WaiterGrant, WaiterId};
use super::wakers::{Wakers, replace_waker};
use crate::clock::Timestamp;

/// The answer to a waiter that is polled.
#[derive(Debug)]
pub(super) enum WaiterPoll {
    /// Its turn has come.
    Granted,
    /// Its turn has not come. It sets its timer to this instant, and is woken if it may run
    /// earlier.
    Wait(LocalInstant),
    /// The limiter was drained: its turn would come too late.
    Drained,
}

impl WaitQueue {
    /// Grants all waiters that are due, and answers the waiter that is polled.
    ///
    /// Without a task for the queue, this is where the timer of any waiter serves all of them.
    pub(super) fn poll(
        &mut self,
        id: WaiterId,
        waker: &Waker,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> WaiterPoll {
        // All of them, in the order of their slots, and not this waiter alone: the timers of
        // several waiters may fire in any order.
        self.grant_due(now, Some(id.number), wakers);
        let answer = self.answer(id, waker, wakers);
        self.wake_next(wakers);
        answer
    }

    fn answer(&mut self, id: WaiterId, waker: &Waker, wakers: &mut Wakers) -> WaiterPoll {
        if self.granted.contains_key(&id.number) {
            return WaiterPoll::Granted;
        }
        let mut next = self.next_two().into_iter().flatten();
        // Only the first two set their timers to their slots. The others would have to set them
        // again each time that one before them leaves; until they are among the first two, the
        // instant that they were told is soon enough, since the first timer grants them all.
        let moved = next.find_map(|(number, .., due)| (number == id.number).then_some(due));
        let promised = self.clock.instant_of(id.promised);
        let until = moved.map_or(promised, |due| due.min(promised));
        let entry = self.waiting.get(&id.number);
        let waiter =
            entry.and_then(|(class, label)| self.classes.get_mut(class)?.waiters.get_mut(label));
        // Neither granted nor in line: only a drain removes a waiter that still has its handle.
        let Some(waiter) = waiter else { return WaiterPoll::Drained };
        waiter.alarm = until;
        wakers.discard.extend(replace_waker(&mut waiter.waker, waker));
        WaiterPoll::Wait(until)
    }

    /// Takes out what a waiter was granted, since its work runs now or its future was dropped.
    pub(super) fn take_granted(&mut self, id: WaiterId) -> Option<WaiterGrant> {
        self.granted.remove(&id.number)
    }

    /// Grants the first waiter the units that a request returns, if they cover its cost. Its slot
    /// is then free. Returns the cost, which the caller deducts from what it returns to the store.
    pub(super) fn grant_returned(
        &mut self,
        covers: impl FnOnce(&UnitVec) -> bool,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> Option<UnitVec> {
        // First, so that returned units are not spent on a waiter whose own slot is due anyway.
        self.grant_due(now, None, wakers);
        // Only the first waiter is asked. If a later one with a smaller cost were granted, units
        // would never add up for a large one at the front.
        let (_, class) = self.slots.first_key_value().filter(|(_, class)| covers(&class.cost))?;
        let (class, cost) = (class.clone(), class.cost.clone());
        let at = self.clock.time_at(now);
        let (waiter, slot) = self.take_first(&class)?;
        // `time_at` may be a little early: not before the reservation, nor after its own slot.
        let at = at.max(slot.grant.made.at).min(slot.key.at());
        let source = GrantSource::Returned(cost.clone());
        self.grant(waiter, at, &slot.grant.after.clone(), source, None, wakers);
        // As if the waiter had left: its slot goes to the waiters behind it.
        self.reassign(slot, true, &mut ReassignBudget::default());
        self.wake_next(wakers);
        Some(cost)
    }

    /// Grants every waiter with a slot that is due, and wakes it; all but `except`, which is being
    /// polled or dropped and needs no wake-up.
    pub(super) fn grant_due(
        &mut self,
        now: LocalInstant,
        except: Option<u64>,
        wakers: &mut Wakers,
    ) {
        while let Some((order, class)) = self.slots.first_key_value()
            && self.due(*order) <= now
        {
            let (at, class) = (order.at(), class.clone());
            let Some((waiter, slot)) = self.take_first(&class) else { return };
            let after = slot.grant.after.clone();
            self.grant(waiter, at, &after, GrantSource::Slot(slot), except, wakers);
        }
    }

    fn grant(
        &mut self,
        mut waiter: Waiter,
        at: Timestamp,
        after: &StateVec,
        source: GrantSource,
        except: Option<u64>,
        wakers: &mut Wakers,
    ) {
        // The waker is woken or dropped after the unlock. Either can run code that locks this queue
        // again.
        match Some(waiter.number) == except {
            true => wakers.discard.extend(waiter.waker.take()),
            false => wakers.wake.extend(waiter.waker.take()),
        }
        let granted = WaiterGrant { at, after: after.clone(), source };
        // Under the same lock that took it out of the line: a poll in between would find it in
        // neither, and take it for drained.
        self.granted.insert(waiter.number, granted);
    }

    /// Takes out the first waiter of a class and the first slot of that class.
    fn take_first(&mut self, class: &ClassId) -> Option<(Waiter, TimeSlot)> {
        // The three maps tell of the same waiters: `classes` has them, `slots` finds the first slot
        // of all classes, and `waiting` finds a waiter that leaves. They change together.
        let (waiter, slot) = self.classes.get_mut(class)?.first()?;
        self.slots.remove(&slot.key);
        self.waiting.remove(&waiter.number);
        self.drop_empty(class);
        Some((waiter, slot))
    }

    /// Wakes the waiters of the first two slots if their timers are later than these slots, so that
    /// they set them again.
    ///
    /// The others need no earlier timer: a timer at one of the first slots grants them all when
    /// they are due, and wakes the next two. There are two timers because one waiter may no longer
    /// be polled.
    pub(super) fn wake_next(&mut self, wakers: &mut Wakers) {
        for (_, class, nth, due) in self.next_two().into_iter().flatten() {
            let waiter =
                self.classes.get_mut(&class).and_then(|class| class.waiters.values_mut().nth(nth));
            if let Some(waiter) = waiter
                && waiter.alarm > due
            {
                // Noted at once, although the task has not polled: a second leaver must not wake it
                // for the same instant again.
                waiter.alarm = due;
                wakers.wake.extend(waiter.waker.take());
            }
        }
    }

    /// The waiters of the first two slots: number, class, position in that class, and when the slot
    /// is due.
    fn next_two(&self) -> [Option<(u64, ClassId, usize, LocalInstant)>; 2] {
        let mut slots = self.slots.iter().map(|(order, class)| (*order, class.clone()));
        let (first, second) = (slots.next(), slots.next());
        // If both slots are of one class, the second one is that of its second waiter.
        let are_equal = matches!((&first, &second), (Some((_, one)), Some((_, two))) if one == two);
        [(first, 0), (second, usize::from(are_equal))].map(|(slot, nth)| {
            let (order, class) = slot?;
            let number = self.classes.get(&class)?.waiters.values().nth(nth)?.number;
            let due = self.due(order);
            Some((number, class, nth, due))
        })
    }
}
