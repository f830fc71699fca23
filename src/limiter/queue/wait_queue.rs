//! The waiters of one queue and their slots: a data structure without clock, lock or future.
//!
//! # Design
//!
//! Waiters of one cost are a [`CostClass`]: the first of them has the first of their slots, the
//! second has the second. When one leaves, those behind it have moved forward once the last slot is
//! taken out. No waiter is touched. That slot is free. It stays on offer to newcomers of its cost,
//! and at its instant the first waiter that fits runs by it.
//!
//! An example, with waiters in the order of their slots, as `name(cost) instant`:
//!
//! ```text
//! A(2) 2 s   B(1) 3 s   C(2) 5 s   D(1) 6 s      A leaves
//! C(2) 2 s   B(1) 3 s   free 5 s   D(1) 6 s      C has moved forward
//!            (C runs at 2 s, B at 3 s)
//!                       D(1) 5 s   free 6 s      at 5 s, the first waiter that fits is D
//! ```
//!
//! What one waiter does takes a bounded number of steps, each in a map. Two operations visit many
//! waiters, each of them once: granting those that are due, and draining.
//!
//! The caller supplies the time, wakes the [`Wakers`] after it has released the lock, and asks the
//! store to undo the slots that are left over.

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

use tokio::time::Instant;

use super::free_slots::FreeSlots;
use super::store_clock::StoreClock;
use super::time_slot::{Cost, SlotKey, TimeSlot};
use crate::clock::Timestamp;

/// How many waiters are looked at for one that can use a free slot, when its instant has come.
const MAX_LOOKS: usize = 256;

/// The waiters of one set of buckets, and their slots.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    classes: HashMap<Cost, CostClass>,
    /// The slots of all classes, each with the class that has it.
    slots: BTreeMap<SlotKey, Cost>,
    /// The waiters that have their turn but do not run yet, each by the slot that it has reserved.
    granted: HashMap<SlotKey, WaiterGrant>,
    pub(super) free: FreeSlots,
    /// Converts the instants of all slots to the clock of this process.
    pub(super) clock: StoreClock,
    /// How many waiters have left since one entered the empty queue.
    leavers: u64,
}

/// The waiters of one cost and as many slots. The n-th waiter has the n-th slot.
///
/// No waiter runs later than it was told: until any instant, there are at least as many slots as
/// waiters that were told an instant up to then. A slot is only exchanged for an earlier one.
#[derive(Debug, Default)]
struct CostClass {
    /// By the slots that they have reserved.
    waiters: BTreeMap<SlotKey, Waiter>,
    slots: BTreeMap<SlotKey, TimeSlot>,
}

#[derive(Debug)]
struct Waiter {
    waker: Option<Waker>,
    /// The instant of its timer.
    alarm: Instant,
    /// Whether a drain removes it.
    is_drainable: bool,
}

/// What a waiter holds from its turn until its work runs.
#[derive(Debug)]
pub(super) struct WaiterGrant {
    /// When its work may run, by the store's clock.
    pub(super) at: Timestamp,
    /// The slot that it uses; or its own, which is free, if it uses units that another request has
    /// returned.
    pub(super) slot: TimeSlot,
    uses_returned: bool,
}

impl WaitQueue {
    /// How many wait, until when the last of them waits, and how many have left.
    pub(super) fn status(&self) -> (usize, Option<Instant>, u64) {
        let until = self.slots.last_key_value().map(|(last, _)| self.due(*last));
        (self.slots.len(), until, self.leavers)
    }

    /// The instant of a slot, by the clock of this process.
    fn due(&self, slot: SlotKey) -> Instant {
        // The clock has an answer: the one that reserved the slot.
        self.clock.instant_of(slot.at()).unwrap_or_else(Instant::now)
    }

    /// Adds a waiter with the slot that it has reserved. Returns when its turn comes if no other
    /// waiter leaves.
    pub(super) fn enter(
        &mut self,
        own: TimeSlot,
        is_drainable: bool,
        now: Instant,
        wakers: &mut Wakers,
    ) -> Instant {
        // First, so that it gets no free slot with an instant that has passed.
        self.grant_due(now, None, wakers);
        if self.slots.is_empty() {
            self.leavers = 0;
        }
        let (key, cost) = (own.key, own.cost());
        let waiter = Waiter { waker: None, alarm: self.due(key), is_drainable };
        let class = self.classes.entry(cost.clone()).or_default();
        class.waiters.insert(key, waiter);
        class.slots.insert(key, own);
        self.slots.insert(key, cost.clone());
        if let Some(free) = self.free.take_before(key, &cost) {
            self.hand_on(free);
        }
        self.wake_next(wakers);
        let turn = self.classes.get(&cost).and_then(|class| class.slot_of(key));
        self.due(turn.unwrap_or(key))
    }

    /// Grants all waiters that are due, and answers the waiter that is polled: `None` if its turn
    /// has come. Otherwise it sets its timer to that instant, and is woken if it may run earlier.
    ///
    /// Without a task for the queue, this is where the timer of any waiter serves all of them.
    ///
    /// # Errors
    ///
    /// If the limiter was drained, and its turn would come too late.
    pub(super) fn poll(
        &mut self,
        own: &TimeSlot,
        waker: &Waker,
        now: Instant,
        wakers: &mut Wakers,
    ) -> Result<Option<Instant>, Unserved> {
        // All of them, in the order of their slots, and not this waiter alone: the timers of
        // several waiters may fire in any order.
        self.grant_due(now, Some(own.key), wakers);
        let answer = self.answer(own, waker, wakers);
        self.wake_next(wakers);
        answer
    }

    fn answer(
        &mut self,
        own: &TimeSlot,
        waker: &Waker,
        wakers: &mut Wakers,
    ) -> Result<Option<Instant>, Unserved> {
        if self.granted.contains_key(&own.key) {
            return Ok(None);
        }
        // Only the first two set their timers to the next slots. The others would have to set them
        // again each time that one before them leaves; until they are among the first two, the
        // instant that they were told is soon enough, since the first timer grants them all.
        let next = self.next_two().into_iter().flatten();
        let next = next.filter(|(_, key, _)| *key == own.key).map(|(.., due)| due);
        let until = next.fold(self.due(own.key), Instant::min);
        let class = self.classes.get_mut(&own.cost());
        // Neither granted nor in line: only a drain removes a waiter that still has its handle.
        let waiter =
            class.and_then(|class| class.waiters.get_mut(&own.key)).ok_or(Unserved::Drained)?;
        waiter.alarm = until;
        wakers.discard.extend(replace_waker(&mut waiter.waker, waker));
        Ok(Some(until))
    }

    /// Takes out what a waiter was granted, since its work runs now or its future was dropped.
    pub(super) fn take_granted(&mut self, own: &TimeSlot) -> Option<WaiterGrant> {
        self.granted.remove(&own.key)
    }

    /// Removes a waiter that was dropped. Returns whether it was granted units that another request
    /// had returned: these are to be given back.
    pub(super) fn leave(&mut self, own: &TimeSlot, now: Instant, wakers: &mut Wakers) -> bool {
        // First, so that a waiter whose instant has come gives up a slot that is due, and not its
        // place in line: the two are handed on by different rules.
        self.grant_due(now, Some(own.key), wakers);
        let mut uses_returned = false;
        if let Some(granted) = self.take_granted(own) {
            self.leavers = self.leavers.saturating_add(1);
            uses_returned = granted.uses_returned;
            if !uses_returned {
                // Not on offer: the work of another waiter would run later than the instant for
                // which the store granted these units, beside the work of that later time.
                self.free.add(granted.slot, false);
            }
        } else if let Some(gone) = self.remove(own.key, &own.cost()) {
            self.leavers = self.leavers.saturating_add(1);
            wakers.discard.extend(gone.waker);
        }
        // Otherwise it was drained, and was counted when it was removed.
        //
        // Those that moved forward may now be the first two, and their timers are set to later
        // instants.
        self.wake_next(wakers);
        uses_returned
    }

    /// Offers a slot without a waiter to the waiters behind it.
    pub(super) fn offer(&mut self, slot: TimeSlot, now: Instant, wakers: &mut Wakers) {
        self.grant_due(now, None, wakers);
        // A slot in the past can only be undone: see `leave`.
        match self.due(slot.key) > now {
            true => self.hand_on(slot),
            false => self.free.add(slot, false),
        }
        self.wake_next(wakers);
    }

    /// Takes out the free slot that the store should undo next; `None` if there is none to try.
    pub(super) fn next_to_undo(&mut self) -> Option<TimeSlot> {
        let newest = self.free.newest()?;
        let last = self.slots.last_key_value();
        let last = last.and_then(|(key, cost)| self.classes.get(cost)?.slots.get(key));
        // If a waiter has a slot that was made later, the bucket was charged after this one, and
        // the store would refuse.
        if last.is_some_and(|last| last.creation_key() > newest) {
            return None;
        }
        self.free.next_to_undo()
    }

    /// Records that the store refused to undo a slot, and offers it again.
    pub(super) fn record_refusal(&mut self, slot: TimeSlot, now: Instant, wakers: &mut Wakers) {
        self.free.record_refusal(slot.creation_key());
        self.offer(slot, now, wakers);
    }

    /// Removes the drainable waiters that would run after `end`, and wakes them. Waiters that are
    /// due are granted first.
    pub(super) fn drain(&mut self, end: Instant, now: Instant, wakers: &mut Wakers) {
        self.grant_due(now, None, wakers);
        let mut late = Vec::new();
        for (cost, class) in &self.classes {
            for ((key, waiter), slot) in class.waiters.iter().zip(class.slots.keys()) {
                if waiter.is_drainable && self.due(*slot) > end {
                    late.push((*key, cost.clone()));
                }
            }
        }
        for (key, cost) in late {
            let gone = self.remove(key, &cost);
            wakers.wake.extend(gone.and_then(|waiter| waiter.waker));
            self.leavers = self.leavers.saturating_add(1);
        }
        self.wake_next(wakers);
    }

    /// Grants the first waiter the units that a request returns, if they cover its cost. Its slot
    /// is then free. Returns the cost, which the caller deducts from what it returns to the store.
    pub(super) fn grant_returned(
        &mut self,
        covers: impl FnOnce(&Cost, Timestamp) -> bool,
        now: Instant,
        wakers: &mut Wakers,
    ) -> Option<Cost> {
        // First, so that returned units are not spent on a waiter whose own slot is due anyway.
        self.grant_due(now, None, wakers);
        let at = self.clock.time_at(now)?;
        // Only the first waiter is asked. If a later one with a smaller cost were granted, units
        // would never add up for a large one at the front.
        let (key, cost) = self.slots.first_key_value().filter(|(_, cost)| covers(cost, at))?;
        let (key, cost) = (*key, cost.clone());
        let slot = self.classes.get(&cost)?.slots.get(&key)?.clone();
        // As if it had left: its slot goes to the waiters behind it.
        let (first, waiter) = self.remove_first(&cost)?;
        // `time_at` may be a little early: not before the reservation, nor after its own slot.
        let at = at.max(slot.made.at).min(key.at());
        self.grant(first, waiter, WaiterGrant { at, slot, uses_returned: true }, None, wakers);
        self.wake_next(wakers);
        Some(cost)
    }

    /// Grants every waiter that is due, and wakes it; all but `except`, which is being polled or
    /// dropped and needs no wake-up.
    fn grant_due(&mut self, now: Instant, except: Option<SlotKey>, wakers: &mut Wakers) {
        loop {
            let (first, free) = (self.slots.first_key_value(), self.free.first());
            let first = first.filter(|(key, _)| free.is_none_or(|free| **key < free));
            let Some(next) = first.map(|(key, _)| *key).or(free) else { return };
            if self.due(next) > now {
                return;
            }
            let granted = match first.map(|(_, cost)| cost.clone()) {
                Some(cost) => self.take_first(&cost),
                None => self.use_free(next),
            };
            if let Some((waiter, own, slot)) = granted {
                let grant = WaiterGrant { at: next.at(), slot, uses_returned: false };
                self.grant(own, waiter, grant, except, wakers);
            }
        }
    }

    /// Takes out a free slot, since its instant has come, and the first waiter that can use it.
    fn use_free(&mut self, free: SlotKey) -> Option<(Waiter, SlotKey, TimeSlot)> {
        let (slot, is_on_offer) = self.free.take(free)?;
        let mut waiting = self.slots.values().take(MAX_LOOKS);
        let cost = waiting.find(|cost| is_on_offer && slot.fits(cost))?.clone();
        let (own, waiter) = self.remove_first(&cost)?;
        Some((waiter, own, slot))
    }

    /// Takes out the first waiter of a class and the first slot of that class.
    fn take_first(&mut self, cost: &Cost) -> Option<(Waiter, SlotKey, TimeSlot)> {
        let class = self.classes.get_mut(cost)?;
        // Both or none, so that the n-th waiter still has the n-th slot.
        let (own, waiter) = class.waiters.pop_first()?;
        let (key, slot) = class.slots.pop_first()?;
        self.slots.remove(&key);
        self.drop_empty(cost);
        Some((waiter, own, slot))
    }

    fn grant(
        &mut self,
        own: SlotKey,
        mut waiter: Waiter,
        grant: WaiterGrant,
        except: Option<SlotKey>,
        wakers: &mut Wakers,
    ) {
        // The waker is woken or dropped after the unlock. Either can run code that locks this queue
        // again.
        match Some(own) == except {
            true => wakers.discard.extend(waiter.waker.take()),
            false => wakers.wake.extend(waiter.waker.take()),
        }
        // Under the same lock that took it out of the line: a poll in between would find it in
        // neither, and take it for drained.
        self.granted.insert(own, grant);
    }

    /// Takes out a waiter. Those behind it move forward, and the last slot of their class is free.
    fn remove(&mut self, own: SlotKey, cost: &Cost) -> Option<Waiter> {
        let waiter = self.classes.get_mut(cost)?.waiters.remove(&own)?;
        self.free_last(cost);
        Some(waiter)
    }

    /// The same for the first waiter of a class.
    fn remove_first(&mut self, cost: &Cost) -> Option<(SlotKey, Waiter)> {
        let first = self.classes.get_mut(cost)?.waiters.pop_first()?;
        self.free_last(cost);
        Some(first)
    }

    /// Hands a free slot on to the waiters behind it of the same cost. The last slot is then free.
    fn hand_on(&mut self, slot: TimeSlot) {
        let cost = slot.cost();
        // If there is none behind it, it is the last one itself.
        self.slots.insert(slot.key, cost.clone());
        self.classes.entry(cost.clone()).or_default().slots.insert(slot.key, slot);
        self.free_last(&cost);
    }

    /// Frees the last slot of a class, which has one more than it has waiters.
    fn free_last(&mut self, cost: &Cost) {
        let last = self.classes.get_mut(cost).and_then(|class| class.slots.pop_last());
        if let Some((key, slot)) = last {
            self.slots.remove(&key);
            // Each caller has granted the waiters that are due, so its instant is to come; or it
            // was when the slot that its waiter uses came.
            self.free.add(slot, true);
        }
        self.drop_empty(cost);
    }

    fn drop_empty(&mut self, cost: &Cost) {
        if self.classes.get(cost).is_some_and(|class| class.slots.is_empty()) {
            self.classes.remove(cost);
        }
    }

    /// Wakes the first two waiters if their timers are later than the next two slots, so that they
    /// set them again.
    ///
    /// The others need no earlier timer: a timer at one of the next slots grants them all when they
    /// are due, and wakes the next two. There are two timers because one waiter may no longer be
    /// polled.
    fn wake_next(&mut self, wakers: &mut Wakers) {
        for (cost, own, due) in self.next_two().into_iter().flatten() {
            let class = self.classes.get_mut(&cost);
            if let Some(waiter) = class.and_then(|class| class.waiters.get_mut(&own))
                && waiter.alarm > due
            {
                // Noted at once, although the task has not polled: a second leaver must not wake it
                // for the same instant again.
                waiter.alarm = due;
                wakers.wake.extend(waiter.waker.take());
            }
        }
    }

    /// The first two waiters, and the instants of the next two slots, which may be free ones.
    fn next_two(&self) -> [Option<(Cost, SlotKey, Instant)>; 2] {
        let mut waiting = self.slots.iter().map(|(key, cost)| (*key, cost));
        let (first, second) = (waiting.next(), waiting.next());
        let mut free = self.free.on_offer().map(|slot| slot.key);
        // The first two of both lists are among these four.
        let mut next = [free.next(), free.next(), first.map(|one| one.0), second.map(|one| one.0)];
        next.sort_unstable_by_key(|key| (key.is_none(), *key));
        let [first_key, second_key, ..] = next;
        // If both are of one class, the second is the second waiter of that class.
        let are_equal = first.zip(second).is_some_and(|(one, two)| one.1 == two.1);
        [(first, first_key, 0), (second, second_key, usize::from(are_equal))].map(
            |(waiter, key, nth)| {
                let (cost, due) = (waiter?.1, self.due(key?));
                let own = *self.classes.get(cost)?.waiters.keys().nth(nth)?;
                Some((cost.clone(), own, due))
            },
        )
    }
}

impl CostClass {
    /// The slot of a waiter; `None` if it is not among the last of its class, where newcomers are.
    fn slot_of(&self, own: SlotKey) -> Option<SlotKey> {
        let behind = self.waiters.range(own..).skip(1).take(MAX_LOOKS).count();
        self.slots.keys().rev().nth(behind).copied().filter(|_| behind < MAX_LOOKS)
    }
}

/// Why a waiter gets no turn. It has given up its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// The limiter was drained, and its turn would have come too late.
    Drained,
    /// It has waited for as long as it may.
    Expired,
}

/// Wakers to be woken and wakers to be dropped, once the queue is unlocked. Both run code of the
/// runtime, which may call this queue again.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    pub(super) wake: Vec<Waker>,
    pub(super) discard: Vec<Waker>,
}

/// Stores a waker. Returns the one that it replaces, or `None` if that wakes the same task.
fn replace_waker(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(known) if known.will_wake(waker) => None,
        slot => slot.replace(waker.clone()),
    }
}
