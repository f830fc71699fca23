//! The waiters on one bucket, and the slots they wait for.
//!
//! # Design
//!
//! A waiter is not tied to a slot. Among waiters of one cost, the first has the first of their
//! slots, the second the second, and so on: when one leaves, all behind it have moved up by
//! one without being touched, and the last slot is free. Handing a slot down the queue, waiter by
//! waiter, comes to the same.
//!
//! With several costs, a slot that is free goes to the next waiter that it is large enough for.
//! It stays among the slots of its cost until the next waiter of a smaller cost, which takes the
//! slot before its own, and leaves its own to be handed on. So only changes of cost take a step.
//!
//! There is no clock, no lock and no future here; the callers bring the time, wake the waiters
//! that they are told to, and try to undo the slots that are left over.

use std::collections::BTreeSet;
use std::task::Waker;

use super::due_waiters::{DueWaiters, WaiterAnswer};
use super::free_slots::FreeSlots;
use super::local_instant::{LocalInstant, StoreClock};
use super::sorted_map::SortedMap;
use super::ticket::Ticket;
use super::time_slot::{SlotGrant, SlotKey, TimeSlot};
use super::unit_vec::UnitVec;
use super::wakers::{Wakers, remember};
use crate::clock::Timestamp;

/// Waiters and slots.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// By their costs, and then in the order in which they stand.
    waiters: SortedMap<(UnitVec, Ticket), Waiter>,
    /// The slots of the waiters: those of each cost are as many as its waiters.
    pub(super) places: SortedMap<SlotKey, SlotGrant>,
    /// The same by the costs that they are used for.
    pub(super) by_cost: SortedMap<(UnitVec, SlotKey)>,
    pub(super) turns: DueWaiters,
    pub(super) free: FreeSlots,
    /// By which the instants of all slots are told.
    pub(super) clock: StoreClock,
    /// The waiters that are not to wait any longer.
    drained: BTreeSet<Ticket>,
    /// The reservations that do not stand in the queue, or not yet.
    pub(super) outside: usize,
    /// The label of the last ticket.
    last: i64,
}

#[derive(Debug)]
struct Waiter {
    waker: Option<Waker>,
    /// When its timer wakes it.
    alarm: LocalInstant,
    /// Whether it can be sent away.
    drainable: bool,
}

/// What a waiter knows of itself.
#[derive(Clone, Debug)]
pub(super) struct WaiterId {
    ticket: Ticket,
    cost: UnitVec,
    /// The slot that it has reserved.
    own: SlotKey,
}

impl WaiterId {
    /// The instant that it was promised, as the store counts time.
    pub(super) const fn promised(&self) -> Timestamp {
        self.own.at()
    }
}

impl WaitQueue {
    /// Whether nothing is left to be done.
    pub(super) fn is_empty(&self) -> bool {
        let waits = !self.waiters.is_empty() || !self.turns.is_empty();
        !waits && self.outside == 0 && !self.free.is_undoing()
    }

    /// Lets a waiter in, with the slot that it has reserved.
    pub(super) fn enter(&mut self, own: TimeSlot, drainable: bool, now: LocalInstant) -> WaiterId {
        let (order, cost) = (own.order, own.grant.used.clone());
        let alarm = self.due(order);
        let ticket = self.ticket(order, &cost);
        self.waiters.insert((cost.clone(), ticket), Waiter { waker: None, alarm, drainable });
        self.add(own);
        if let Some(TimeSlot { order: better, grant }) =
            self.free.better(order, &cost, &self.clock, now)
        {
            self.add(TimeSlot { order: better, grant: SlotGrant { used: cost.clone(), ..grant } });
            self.give_up(order, cost.clone());
        }
        WaiterId { ticket, cost, own: order }
    }

    /// A ticket that stands where the slot does among those of its cost.
    fn ticket(&mut self, own: SlotKey, cost: &UnitVec) -> Ticket {
        let behind = self.by_cost.iter_from(&(cost.clone(), own));
        let behind = behind.take_while(|((of, _), ())| of == cost);
        let label = match behind.count() {
            0 => {
                self.last = Ticket::after(self.last);
                self.last
            }
            behind => {
                let back = self.waiters.iter_back_from(&(cost.clone(), Ticket::LAST));
                let back = back.map(|(key, _)| key).take_while(|(of, _)| of == cost);
                let mut back = back.map(|(_, ticket)| *ticket);
                match back.nth(behind.saturating_sub(1)) {
                    Some(next) => Ticket::between(back.next(), next),
                    // There are as many waiters as slots.
                    None => self.last,
                }
            }
        };
        Ticket::new(label, own.number())
    }

    /// Offers a slot to those behind it.
    pub(super) fn offer(&mut self, place: TimeSlot, now: LocalInstant, wakers: &mut Wakers) {
        self.call_due(now);
        match self.due(place.order) > now {
            true => {
                let (order, cost) = (place.order, place.grant.used.clone());
                self.add(place);
                self.give_up(order, cost);
                self.wake_next(None, wakers);
            }
            false => self.free.add(place),
        }
    }

    /// Hears what became of a slot that was to be undone.
    pub(super) fn undone(
        &mut self,
        place: TimeSlot,
        given: bool,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) {
        self.free.undone();
        if given {
            return;
        }
        // A waiter may have come meanwhile that fits in.
        self.call_due(now);
        let left = match self.due(place.order) > now {
            true => {
                self.add(place.clone());
                self.reassign_fully(place.order, place.grant.used.clone())
            }
            false => None,
        };
        match left {
            Some(other) if other.order != place.order => self.free.add(other),
            _ => self.free.keep(place, &self.clock, now),
        }
        self.wake_next(None, wakers);
    }

    /// When the turn of a waiter comes that has just entered, if no other leaves.
    pub(super) fn turn(&self, who: &WaiterId) -> LocalInstant {
        let last = self.by_cost.last_before(&(who.cost.clone(), SlotKey::LAST));
        let last = last.filter(|((of, _), ())| *of == who.cost).map(|((_, order), ())| *order);
        self.due(last.map_or(who.own, |last| last.min(who.own)))
    }

    /// Says what a waiter has to do.
    pub(super) fn poll(
        &mut self,
        who: &WaiterId,
        waker: &Waker,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> WaiterAnswer {
        self.call_due(now);
        let told = self.told(who, waker, now, wakers);
        // It is on its way already, or it has to wait for the first.
        self.wake_next(Some(who.ticket), wakers);
        told
    }

    fn told(
        &mut self,
        who: &WaiterId,
        waker: &Waker,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> WaiterAnswer {
        if let Some(told) = self.turns.told(who.ticket, waker, now, wakers) {
            return told;
        }
        let mut next = self.next_two().into_iter().flatten();
        let own = match next.find(|(key, _)| key.1 == who.ticket) {
            Some((_, due)) => due,
            None => self.due(who.own),
        };
        // What comes before it is still to come, or it would have been called.
        let first = self.places.first().map(|(order, _)| self.due(*order));
        let until = first.map_or(own, |first| own.max(first));
        let Some(waiter) = self.waiters.get_mut(&(who.cost.clone(), who.ticket)) else {
            self.drained.remove(&who.ticket);
            return WaiterAnswer::Drained;
        };
        waiter.alarm = until;
        wakers.dead.extend(remember(&mut waiter.waker, waker));
        WaiterAnswer::Wait(until)
    }

    /// Lets those behind a waiter go whose turn has come.
    pub(super) fn pass(&mut self, who: &WaiterId, now: LocalInstant, wakers: &mut Wakers) {
        self.turns.let_go(who.ticket, now);
        self.wake_next(Some(who.ticket), wakers);
    }

    /// Lets a waiter out that is on its way. Returns the slot that it has used.
    pub(super) fn used(
        &mut self,
        who: &WaiterId,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> Option<TimeSlot> {
        let place = self.turns.remove(who.ticket, now, wakers);
        self.wake_next(Some(who.ticket), wakers);
        place
    }

    /// Remembers whom to wake that has let others go, should all waiting come to an end.
    pub(super) fn wake_on_drain(&mut self, who: &WaiterId, waker: &Waker, wakers: &mut Wakers) {
        self.turns.wake_on_drain(who.ticket, waker, wakers);
    }

    /// Lets a waiter out that gives up.
    pub(super) fn leave(&mut self, who: &WaiterId, now: LocalInstant, wakers: &mut Wakers) {
        self.call_due(now);
        self.drained.remove(&who.ticket);
        if let Some(place) = self.turns.remove(who.ticket, now, wakers) {
            // A slot whose instant has come is of no use to anybody else: with it, work of that
            // instant would run at another.
            self.free.add(place);
        } else if let Some(waiter) = self.waiters.remove(&(who.cost.clone(), who.ticket)) {
            wakers.dead.extend(waiter.waker);
            self.give_up_of(&who.cost, who.own);
        }
        self.wake_next(Some(who.ticket), wakers);
    }

    /// Sends the waiters away whose turn would come after `end`, and wakes those that wait although
    /// their turn has come.
    pub(super) fn drain(&mut self, end: LocalInstant, now: LocalInstant, wakers: &mut Wakers) {
        self.call_due(now);
        let is_late = |order: &SlotKey| self.due(*order) > end;
        // Both are sorted by cost, and there are as many of one as of the other.
        let turns = self.waiters.iter().zip(self.by_cost.iter());
        let mut late: Vec<_> = turns
            .filter(|((_, waiter), ((_, place), ()))| waiter.drainable && is_late(place))
            .map(|(((cost, ticket), _), ((_, place), ()))| (*place, cost.clone(), *ticket))
            .collect();
        late.sort_unstable_by_key(|(place, ..)| std::cmp::Reverse(*place));
        for (place, cost, ticket) in late {
            let gone = self.waiters.remove(&(cost.clone(), ticket));
            wakers.wake.extend(gone.and_then(|waiter| waiter.waker));
            self.give_up_of(&cost, place);
            self.drained.insert(ticket);
        }
        self.turns.wake_all_on_drain(wakers);
        self.wake_next(None, wakers);
    }

    /// Gives up a slot of this cost which is no later than this one.
    ///
    /// That of the waiter is this one or, once it has moved up, one before. Any will do: they are
    /// all of one cost, and those behind whichever is given up move up.
    fn give_up_of(&mut self, cost: &UnitVec, own: SlotKey) {
        let before = self.by_cost.last_before(&(cost.clone(), own.next()));
        let before = before.filter(|((of, _), ())| of == cost);
        let place = before.or_else(|| self.by_cost.first_from(&(cost.clone(), SlotKey::FIRST)));
        if let Some(((of, place), ())) = place
            && of == cost
        {
            self.give_up(*place, cost.clone());
        }
    }

    /// Hands a slot down the queue, and keeps what is left over.
    fn give_up(&mut self, place: SlotKey, cost: UnitVec) {
        if let Some(left) = self.reassign_fully(place, cost) {
            self.free.add(left);
        }
    }

    /// The instant of a slot, as this process counts time.
    pub(super) fn due(&self, place: SlotKey) -> LocalInstant {
        self.clock.moment(place.at())
    }

    pub(super) fn add(&mut self, place: TimeSlot) {
        self.by_cost.insert((place.grant.used.clone(), place.order), ());
        self.places.insert(place.order, place.grant);
    }

    /// Calls every waiter whose instant has come.
    fn call_due(&mut self, now: LocalInstant) {
        while self.places.first().is_some_and(|(order, _)| self.due(*order) <= now) {
            let Some((order, grant)) = self.places.pop_first() else { return };
            self.by_cost.remove(&(grant.used.clone(), order));
            let Some(key) = self.nth(&grant.used, 0) else { continue };
            if let Some(waiter) = self.waiters.remove(&key) {
                self.turns.call(key.1, TimeSlot { order, grant }, waiter.waker, now);
            }
        }
    }

    /// One of the first waiters of a cost.
    fn nth(&self, cost: &UnitVec, nth: usize) -> Option<(UnitVec, Ticket)> {
        let mut equals = self.waiters.iter_from(&(cost.clone(), Ticket::FIRST));
        equals.nth(nth).map(|(key, _)| key).filter(|(of, _)| of == cost).cloned()
    }

    /// The waiters of the first two slots, and when these are due.
    fn next_two(&self) -> [Option<((UnitVec, Ticket), LocalInstant)>; 2] {
        let mut places = self.places.iter();
        let (first, second) = (places.next(), places.next());
        let are_equal =
            matches!((first, second), (Some((_, one)), Some((_, two))) if one.used == two.used);
        [(first, 0), (second, usize::from(are_equal))].map(|(place, nth)| {
            let (order, grant) = place?;
            Some((self.nth(&grant.used, nth)?, self.due(*order)))
        })
    }

    /// Wakes the waiter that is to go, and those that wait for one of the first slots without
    /// knowing it: two of them, as there may be one that is not polled.
    fn wake_next(&mut self, except: Option<Ticket>, wakers: &mut Wakers) {
        self.turns.wake_first(except, wakers);
        for (key, due) in self.next_two().into_iter().flatten() {
            if Some(key.1) != except
                && let Some(waiter) = self.waiters.get_mut(&key)
                && waiter.alarm > due
            {
                waiter.alarm = due;
                wakers.wake.extend(waiter.waker.take());
            }
        }
    }
}
