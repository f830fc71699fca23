//! The waiters whose instant has come.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use super::local_instant::LocalInstant;
use super::ticket::Ticket;
use super::time_slot::TimeSlot;
use super::wakers::{Wakers, remember};

/// How long a due waiter that is not polled delays those behind it. A busy runtime polls its tasks
/// much sooner.
const STALL_TIMEOUT: Duration = Duration::from_millis(100);

/// What a waiter is told that asks for its turn.
#[derive(Debug)]
pub(super) enum WaiterAnswer {
    /// It is its turn.
    Go,
    /// It is not, and will not be before then, unless it is woken or a waiter that moved up before
    /// it is not polled.
    Wait(LocalInstant),
    /// It is not to wait any longer.
    Drained,
}

#[derive(Debug, Default)]
pub(super) struct DueWaiters {
    /// In the order of their tickets; the first is to go.
    called: BTreeMap<Ticket, DueWaiter>,
    /// Since when the first of them has been the first.
    first_since: Option<LocalInstant>,
    /// Those that may go at any time: they were first.
    let_go: BTreeMap<Ticket, DueWaiter>,
}

#[derive(Debug)]
struct DueWaiter {
    place: TimeSlot,
    waker: Option<Waker>,
    called: LocalInstant,
    /// Whether it was polled since, so that it will be again.
    asked: bool,
}

impl DueWaiters {
    pub(super) fn is_empty(&self) -> bool {
        self.called.is_empty() && self.let_go.is_empty()
    }

    /// Calls a waiter: its instant has come.
    pub(super) fn call(
        &mut self,
        ticket: Ticket,
        place: TimeSlot,
        waker: Option<Waker>,
        now: LocalInstant,
    ) {
        if self.called.first_key_value().is_none_or(|(first, _)| ticket < *first) {
            self.first_since = Some(now);
        }
        self.called.insert(ticket, DueWaiter { place, waker, called: now, asked: false });
    }

    /// What a waiter is told; `None` if it has not been called.
    pub(super) fn told(
        &mut self,
        ticket: Ticket,
        waker: &Waker,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> Option<WaiterAnswer> {
        if self.let_go.contains_key(&ticket) {
            return Some(WaiterAnswer::Go);
        }
        if !self.called.contains_key(&ticket) {
            return None;
        }
        let late = self.first_since.get_or_insert(now).plus(STALL_TIMEOUT);
        if now >= late && self.called.first_key_value().is_some_and(|(first, _)| *first != ticket) {
            self.pass_by(now, wakers);
        }
        let late = self.first_since.get_or_insert(now).plus(STALL_TIMEOUT);
        let is_first = self.called.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let turn = self.called.get_mut(&ticket)?;
        turn.asked = true;
        wakers.dead.extend(remember(&mut turn.waker, waker));
        Some(if is_first { WaiterAnswer::Go } else { WaiterAnswer::Wait(late) })
    }

    /// Passes by the first, which has not moved, and those behind it that are not polled either;
    /// the others keep their order.
    fn pass_by(&mut self, now: LocalInstant, wakers: &mut Wakers) {
        let mut is_first = true;
        while let Some(first) = self.called.first_entry() {
            let is_idle = !first.get().asked && now >= first.get().called.plus(STALL_TIMEOUT);
            if !is_first && !is_idle {
                break;
            }
            is_first = false;
            let (idle, mut turn) = first.remove_entry();
            wakers.wake.extend(turn.waker.take());
            self.let_go.insert(idle, turn);
        }
        self.first_since = Some(now);
    }

    /// Lets those behind a waiter go, which is not on its way yet.
    pub(super) fn let_go(&mut self, ticket: Ticket, now: LocalInstant) {
        if let Some(turn) = self.uncall(ticket, now) {
            self.let_go.insert(ticket, turn);
        }
    }

    /// Remembers the waker of a waiter that has let others go, for the end of all waiting.
    pub(super) fn wake_on_drain(&mut self, ticket: Ticket, waker: &Waker, wakers: &mut Wakers) {
        if let Some(turn) = self.let_go.get_mut(&ticket) {
            wakers.dead.extend(remember(&mut turn.waker, waker));
        }
    }

    pub(super) fn wake_all_on_drain(&mut self, wakers: &mut Wakers) {
        wakers.wake.extend(self.let_go.values_mut().filter_map(|turn| turn.waker.take()));
    }

    /// Lets a waiter out, which is on its way or gives up. Returns its slot.
    pub(super) fn remove(
        &mut self,
        ticket: Ticket,
        now: LocalInstant,
        wakers: &mut Wakers,
    ) -> Option<TimeSlot> {
        let turn = self.let_go.remove(&ticket).or_else(|| self.uncall(ticket, now))?;
        wakers.dead.extend(turn.waker);
        Some(turn.place)
    }

    fn uncall(&mut self, ticket: Ticket, now: LocalInstant) -> Option<DueWaiter> {
        if self.called.first_key_value().is_some_and(|(first, _)| *first == ticket) {
            self.first_since = Some(now);
        }
        self.called.remove(&ticket)
    }

    /// Wakes the waiter that is to go.
    pub(super) fn wake_first(&mut self, except: Option<Ticket>, wakers: &mut Wakers) {
        if let Some(mut first) = self.called.first_entry()
            && Some(*first.key()) != except
        {
            wakers.wake.extend(first.get_mut().waker.take());
        }
    }
}
