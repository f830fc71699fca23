//! The waiters of one queue and their slots: a data structure without clock, lock or future.
//!
//! # Design
//!
//! Waiters of one cost are a [`CostClass`], with the slots that were made for that cost: the first
//! waiter has the first slot, the second has the second, and the slots that are left over are free.
//! So when one leaves, those behind it have moved forward, and no waiter is touched. A newcomer of
//! the same cost has a slot that was free. At the instant of a free slot whose class has no waiter,
//! the first waiter of another cost that fits runs by it.
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
//! The caller supplies the time, wakes and drops wakers after it has released the lock, and asks the
//! store to undo the slots that are left over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::store_clock::StoreClock;
use super::time_slot::{Cost, CreationKey, SlotKey, TimeSlot};
use crate::backend::Reading;
use crate::clock::Timestamp;
use crate::limiter::events::QueueStep;

/// How many slots are looked at for a waiter that can use a free one, when its instant has come.
const MAX_LOOKS: usize = 256;

/// How many free slots are kept when there are twice as many. A layer's queue has at most 1,000
/// waiters unless set, and all of them may leave while the store is asked about the slot of the first.
const MAX_FREE: usize = 1_000;

/// The waiters of one set of buckets, and their slots.
///
/// No waiter runs later than it was told: of each cost there are, until any instant, at least as many
/// slots as waiters that were told an instant up to then.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// By the slots that they have reserved.
    waiters: BTreeMap<SlotKey, Waiter>,
    /// All slots, whether a waiter has them or they are free.
    slots: BTreeMap<SlotKey, TimeSlot>,
    /// The same slots in the order in which they were reserved.
    made: BTreeSet<CreationKey>,
    classes: HashMap<Cost, CostClass>,
    /// Slots that were given up after their instant. The store may undo them, and no waiter may use
    /// them: its work would run later than the instant for which the store granted these units,
    /// beside the work of that later time.
    past: Vec<TimeSlot>,
    /// The waiters that have their turn but do not run yet, each by the slot that it has reserved: when
    /// its work may run, by the store's clock, and what it uses.
    granted: HashMap<SlotKey, (Timestamp, Granted)>,
    /// Whether the store was asked to undo a slot and has not answered. There is one such call at a
    /// time: a store that answers late may carry out several in any order, and refuse all but one.
    is_undoing: bool,
    /// The slot that the store refused to undo. Neither it nor an older one is tried until
    /// something has changed.
    refused: Option<CreationKey>,
    /// The slot by which the ledgers know this queue.
    pub(super) kept_by: Option<CreationKey>,
    /// Converts the instants of all slots to the clock of this process.
    pub(super) clock: StoreClock,
    /// How many waiters have left since one entered the empty queue.
    leavers: u64,
    /// Wakers to be woken, and those to be dropped, once the queue is unlocked. Both run code of the
    /// runtime, which may call this queue again.
    pub(super) wake: Vec<Waker>,
    pub(super) discard: Vec<Waker>,
    /// Slots that no work will use, to be settled once the queue is unlocked.
    pub(super) spent: Vec<TimeSlot>,
}

/// What a waiter uses that has its turn.
#[derive(Debug)]
enum Granted {
    /// A slot, its own or that of another.
    Slot(TimeSlot),
    /// Units that another request has returned, as that has paid them.
    Returned(SmallVec<[Reading; 1]>),
}

/// The waiters of one cost and the slots for it. The n-th waiter has the n-th slot, and the last ones
/// are free.
#[derive(Debug, Default)]
struct CostClass {
    waiters: BTreeSet<SlotKey>,
    slots: BTreeSet<SlotKey>,
}

#[derive(Debug)]
struct Waiter {
    cost: Cost,
    waker: Option<Waker>,
    /// The instant of its timer.
    alarm: Instant,
    /// Whether a drain removes it.
    is_drainable: bool,
}

impl WaitQueue {
    /// How many wait, for how long the last of them waits, and how many have left.
    pub(super) fn status(&self, now: Instant) -> (usize, Duration, u64) {
        let last = self.classes.values().filter(|class| !class.waiters.is_empty());
        let until = last.filter_map(|class| class.slot_before(0)).max();
        let wait = until.map(|last| self.due(last).saturating_duration_since(now));
        (self.waiters.len(), wait.unwrap_or_default(), self.leavers)
    }

    /// The instant of a slot, by the clock of this process.
    fn due(&self, slot: SlotKey) -> Instant {
        // The clock has an answer: the one that reserved the slot.
        self.clock.instant_of(slot.at()).unwrap_or_else(Instant::now)
    }

    /// Adds a waiter with the slot that it has reserved. Returns when its turn comes if no other
    /// waiter leaves.
    pub(super) fn enter(&mut self, own: TimeSlot, is_drainable: bool, now: Instant) -> Instant {
        // First, so that it gets no free slot with an instant that has passed.
        self.grant_due(now, None);
        if self.waiters.is_empty() {
            self.leavers = 0;
        }
        let (key, cost) = (own.key, own.cost());
        self.add(own);
        let turn = self.classes.get_mut(&cost).and_then(|class| class.enter(key));
        let waiter = Waiter { cost, waker: None, alarm: self.due(key), is_drainable };
        self.waiters.insert(key, waiter);
        self.wake_next();
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
        own: SlotKey,
        waker: &Waker,
        now: Instant,
    ) -> Result<Option<Instant>, QueueStep> {
        // All of them, in the order of their slots, and not this waiter alone: the timers of
        // several waiters may fire in any order.
        self.grant_due(now, Some(own));
        let answer = self.answer(own, waker);
        self.wake_next();
        answer
    }

    fn answer(&mut self, own: SlotKey, waker: &Waker) -> Result<Option<Instant>, QueueStep> {
        if self.granted.contains_key(&own) {
            return Ok(None);
        }
        // Only the first two set their timers to the next slots. The others would have to set them
        // again each time that one before them leaves; until they are among the first two, the
        // instant that they were told is soon enough, since the first timer grants them all.
        let next = self.next_two().into_iter().filter(|(waiter, _)| *waiter == own);
        let until = next.map(|(_, due)| due).fold(self.due(own), Instant::min);
        // Neither granted nor in line: only a drain removes a waiter that still has its handle.
        let waiter = self.waiters.get_mut(&own).ok_or(QueueStep::Drained)?;
        waiter.alarm = until;
        self.discard.extend(replace_waker(&mut waiter.waker, waker));
        Ok(Some(until))
    }

    /// Takes out a waiter whose work runs now. Returns when it was granted.
    pub(super) fn use_up(&mut self, own: SlotKey) -> Option<Timestamp> {
        self.granted.remove(&own).map(|(at, _)| at)
    }

    /// What a granted waiter uses of the bucket at this place of the set.
    pub(super) fn used(&self, own: SlotKey, place: usize) -> Option<Reading> {
        let (Granted::Slot(TimeSlot { taken, .. }) | Granted::Returned(taken)) =
            &self.granted.get(&own)?.1;
        taken.get(place).copied()
    }

    /// Removes a waiter that was dropped. Returns the units that it was granted if another request had
    /// returned them: these are to be given back.
    pub(super) fn leave(&mut self, own: SlotKey, now: Instant) -> Option<SmallVec<[Reading; 1]>> {
        // First, so that a waiter whose instant has come gives up a slot that is due, and not its
        // place in line: the two are handed on by different rules.
        self.grant_due(now, Some(own));
        let (granted, gone) = (self.granted.remove(&own), self.take_waiter(own));
        // It is neither if it was drained, and was counted when it was removed.
        self.leavers = self.leavers.saturating_add(u64::from(granted.is_some() || gone.is_some()));
        self.discard.extend(gone.and_then(|gone| gone.waker));
        let mut returned = None;
        match granted {
            Some((_, Granted::Slot(slot))) => self.past.push(slot),
            Some((_, Granted::Returned(taken))) => returned = Some(taken),
            None => {}
        }
        // Those that moved forward may now be the first two, and their timers are set to later
        // instants.
        self.wake_next();
        returned
    }

    /// Offers a slot without a waiter to the waiters behind it.
    pub(super) fn offer(&mut self, slot: TimeSlot, now: Instant) {
        self.grant_due(now, None);
        match self.due(slot.key) > now {
            true => self.add(slot),
            false => self.past.push(slot),
        }
        self.wake_next();
    }

    /// When the free slot was reserved that the store would undo. There is none if a waiter has a slot
    /// that was made later: the bucket was charged after all that are free.
    pub(super) fn newest_free(&self) -> Option<CreationKey> {
        let past = self.past.iter().map(TimeSlot::creation_key).max();
        let Some(last) = self.made.last().copied().filter(|last| past < Some(*last)) else {
            return past;
        };
        let class = self.classes.get(&self.slots.get(&last.1)?.cost())?;
        class.is_free(last.1).then_some(last)
    }

    /// Takes out the free slot that the store should undo next; `None` if there is none to try.
    ///
    /// The one that was reserved last is undone first: as long as it stands, it is a charge that came
    /// after all others, and none of them can be undone.
    pub(super) fn next_to_undo(&mut self) -> Option<TimeSlot> {
        if self.slots.len().saturating_sub(self.waiters.len()) > MAX_FREE.saturating_mul(2) {
            self.spend_oldest();
        }
        let newest = self.newest_free()?;
        // What charged the bucket after the refused slot was made came after all older ones as well.
        if self.is_undoing || self.refused.is_some_and(|refused| newest <= refused) {
            return None;
        }
        // Set before the caller unlocks the queue. From here on the slot is with the caller alone,
        // which must record an answer: without one, no slot of this queue is ever undone again.
        self.is_undoing = true;
        let past = self.past.iter().position(|slot| slot.key == newest.1);
        past.map(|nth| self.past.swap_remove(nth)).or_else(|| self.take(newest.1))
    }

    /// Takes out a free slot, whichever it is.
    pub(super) fn take_free(&mut self) -> Option<TimeSlot> {
        if let Some(past) = self.past.pop() {
            return Some(past);
        }
        let free = self.classes.values().find_map(|class| class.free().next().copied());
        self.take(free?)
    }

    /// Spends all free slots.
    pub(super) fn spend_free(&mut self) {
        while let Some(slot) = self.take_free() {
            self.spent.push(slot);
        }
    }

    /// Spends the free slots that would be the last to be undone: the bucket keeps their debt.
    fn spend_oldest(&mut self) {
        let free = self.classes.values().flat_map(CostClass::free);
        let free = free.filter_map(|key| Some(self.slots.get(key)?.creation_key()));
        let mut free: Vec<_> = free.collect();
        free.sort_unstable();
        free.truncate(free.len().saturating_sub(MAX_FREE));
        for (_, key) in free {
            let slot = self.take(key);
            self.spent.extend(slot);
        }
    }

    /// Records that the store has undone a slot, or that its answer was lost. In the second case
    /// the slot counts as spent, since it may have been undone.
    pub(super) const fn record_undone(&mut self) {
        self.is_undoing = false;
        // The undone slot was a charge itself. Older slots that were refused because of it may be
        // next.
        self.retry_undo();
    }

    /// Records that the store refused to undo a slot, and offers it again.
    pub(super) fn record_refusal(&mut self, slot: TimeSlot, now: Instant) {
        self.is_undoing = false;
        self.refused = Some(slot.creation_key());
        self.offer(slot, now);
    }

    /// Lets the refused slots be tried again.
    pub(super) const fn retry_undo(&mut self) {
        self.refused = None;
    }

    /// Removes the drainable waiters that would run after `end`, and wakes them. Waiters that are
    /// due are granted first.
    pub(super) fn drain(&mut self, end: Instant, now: Instant) {
        self.grant_due(now, None);
        let all = self.classes.values().flat_map(|class| class.waiters.iter().zip(&class.slots));
        let late = all.filter(|(own, slot)| {
            let is_drainable = self.waiters.get(own).is_some_and(|waiter| waiter.is_drainable);
            is_drainable && self.due(**slot) > end
        });
        let late: Vec<_> = late.map(|(own, _)| *own).collect();
        for own in late {
            let waker = self.take_waiter(own).and_then(|waiter| waiter.waker);
            self.wake.extend(waker);
            self.leavers = self.leavers.saturating_add(1);
        }
        self.wake_next();
    }

    /// Grants the first waiter the units that a request returns, if they cover its cost. Its slot
    /// is then free. Returns the cost, which the caller deducts from what it returns to the store.
    pub(super) fn grant_returned(
        &mut self,
        returned: impl FnOnce(&Cost, Timestamp) -> Option<SmallVec<[Reading; 1]>>,
        now: Instant,
    ) -> Option<Cost> {
        // First, so that returned units are not spent on a waiter whose own slot is due anyway.
        self.grant_due(now, None);
        let at = self.clock.time_at(now)?;
        // Only the first waiter is asked. If a later one with a smaller cost were granted, units
        // would never add up for a large one at the front.
        let [first, _] = self.first_two();
        let (own, slot) = first?;
        let cost = slot.cost();
        let returned = returned(&cost, at)?;
        // `time_at` may be a little early: not before the reservation, nor after its own slot.
        let at = at.max(slot.made.at).min(slot.key.at());
        // As if it had left: its slot goes to the waiters behind it.
        self.grant(own, (at, Granted::Returned(returned)), None);
        self.wake_next();
        Some(cost)
    }

    /// Grants every waiter that is due, and wakes it; all but `except`, which is being polled or
    /// dropped and needs no wake-up.
    fn grant_due(&mut self, now: Instant, except: Option<SlotKey>) {
        // The store was asked about these when they were given up.
        self.spent.append(&mut self.past);
        while let Some((&key, slot)) = self.slots.first_key_value() {
            if self.due(key) > now {
                return;
            }
            // The first slot of a class is that of its first waiter. If it has none, the slot is free.
            let own = self.first_of(&slot.cost()).or_else(|| self.first_that_fits(slot));
            let Some(slot) = self.take(key) else { return };
            match own {
                Some(own) => self.grant(own, (key.at(), Granted::Slot(slot)), except),
                None => self.spent.push(slot),
            }
        }
    }

    /// The first waiter of a cost.
    fn first_of(&self, cost: &Cost) -> Option<SlotKey> {
        self.classes.get(cost)?.waiters.first().copied()
    }

    /// The first waiter that can use this free slot.
    fn first_that_fits(&self, free: &TimeSlot) -> Option<SlotKey> {
        let costs = self.slots.values().take(MAX_LOOKS).map(TimeSlot::cost);
        costs.filter(|cost| free.fits(cost)).find_map(|cost| self.first_of(&cost))
    }

    fn grant(&mut self, own: SlotKey, granted: (Timestamp, Granted), except: Option<SlotKey>) {
        // The waker is woken or dropped after the unlock. Either can run code that locks this queue
        // again.
        let waker = self.take_waiter(own).and_then(|waiter| waiter.waker);
        match Some(own) == except {
            true => self.discard.extend(waker),
            false => self.wake.extend(waker),
        }
        // Under the same lock that took it out of the line: a poll in between would find it in
        // neither, and take it for drained.
        self.granted.insert(own, granted);
    }

    /// Takes out a waiter. Those behind it of its cost move forward.
    fn take_waiter(&mut self, own: SlotKey) -> Option<Waiter> {
        let waiter = self.waiters.remove(&own)?;
        if let Some(class) = self.classes.get_mut(&waiter.cost) {
            class.waiters.remove(&own);
        }
        Some(waiter)
    }

    fn add(&mut self, slot: TimeSlot) {
        self.made.insert(slot.creation_key());
        self.classes.entry(slot.cost()).or_default().slots.insert(slot.key);
        self.slots.insert(slot.key, slot);
    }

    fn take(&mut self, key: SlotKey) -> Option<TimeSlot> {
        let slot = self.slots.remove(&key)?;
        self.made.remove(&slot.creation_key());
        let cost = slot.cost();
        let class = self.classes.get_mut(&cost)?;
        class.slots.remove(&key);
        if class.slots.is_empty() {
            self.classes.remove(&cost);
        }
        Some(slot)
    }

    /// Wakes the first two waiters if their timers are later than the next two slots, so that they
    /// set them again.
    ///
    /// The others need no earlier timer: a timer at one of the next slots grants them all when they
    /// are due, and wakes the next two. There are two timers because one waiter may no longer be
    /// polled.
    fn wake_next(&mut self) {
        for (own, due) in self.next_two() {
            if let Some(waiter) = self.waiters.get_mut(&own)
                && waiter.alarm > due
            {
                // Noted at once, although the task has not polled: a second leaver must not wake it
                // for the same instant again.
                waiter.alarm = due;
                self.wake.extend(waiter.waker.take());
            }
        }
    }

    /// The first two waiters, and the instants of the next two slots, which may be free ones.
    fn next_two(&self) -> SmallVec<[(SlotKey, Instant); 2]> {
        let due = self.slots.keys().map(|key| self.due(*key));
        self.first_two().into_iter().flatten().map(|(own, _)| own).zip(due).collect()
    }

    /// The first two waiters, with their slots.
    fn first_two(&self) -> [Option<(SlotKey, &TimeSlot)>; 2] {
        let mut first = None;
        let mut waiting = self.slots.values().filter_map(|slot| {
            let cost = slot.cost();
            let nth = usize::from(first.as_ref() == Some(&cost));
            let own = *self.classes.get(&cost)?.waiters.iter().nth(nth)?;
            first.get_or_insert(cost);
            Some((own, slot))
        });
        [waiting.next(), waiting.next()]
    }
}

impl CostClass {
    /// Adds a waiter. Returns its slot; `None` if it is not among the last of its class, where
    /// newcomers are.
    fn enter(&mut self, own: SlotKey) -> Option<SlotKey> {
        self.waiters.insert(own);
        let behind = self.waiters.range(own..).skip(1).take(MAX_LOOKS).count();
        self.slot_before(behind).filter(|_| behind < MAX_LOOKS)
    }

    /// The slot of the waiter with so many behind it.
    fn slot_before(&self, behind: usize) -> Option<SlotKey> {
        self.slots.iter().rev().nth(self.free_count().saturating_add(behind)).copied()
    }

    fn free_count(&self) -> usize {
        self.slots.len().saturating_sub(self.waiters.len())
    }

    fn free(&self) -> impl Iterator<Item = &SlotKey> {
        self.slots.iter().rev().take(self.free_count())
    }

    fn is_free(&self, slot: SlotKey) -> bool {
        self.free().take_while(|free| **free >= slot).any(|free| *free == slot)
    }
}

/// Stores a waker. Returns the one that it replaces, or `None` if that wakes the same task.
fn replace_waker(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(known) if known.will_wake(waker) => None,
        slot => slot.replace(waker.clone()),
    }
}
