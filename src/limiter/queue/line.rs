//! The waiters on one bucket, and the places they wait for.
//!
//! # Design
//!
//! A waiter is not tied to a place. Among waiters of one cost, the first has the first of their
//! places, the second the second, and so on: when one leaves, all behind it have moved up by
//! one without being touched, and the last place is free. Handing a place down the line, waiter by
//! waiter, comes to the same.
//!
//! With several costs, a place that is free goes to the next waiter that it is large enough for.
//! It stays among the places of its cost until the next waiter of a smaller cost, which takes the
//! place before its own, and leaves its own to be handed on. So only changes of cost take a step.
//!
//! There is no clock, no lock and no future here; those who call bring the time, wake whom they
//! are told to, and try to undo the place that is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::place::{Order, Place};
use super::wakers::{Wakers, remember};
use crate::algebra::Units;

/// How long those behind wait for a waiter whose turn it is and which does not move, as nobody
/// polls it. A busy runtime comes round much sooner.
const PATIENCE: Duration = Duration::from_millis(100);

/// How many free places that nobody fits into are kept for those who come later.
const KEPT: usize = 64;

/// Where a waiter stands: before all whose tickets are larger.
///
/// Whoever comes last stands last, though places behind it may have been undone, so that its own is
/// no later than one that was given up before. Only if tokens were given back is a place before
/// those of others; its waiter stands before them then, by a number between theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    label: i128,
    number: u64,
}

/// How far apart tickets are, so that others fit between them.
const GAP: i128 = 1 << 64;

/// Waiters and places; there are as many of one as of the other.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) costs: BTreeMap<Units, Equals>,
    pub(super) places: BTreeMap<Order, Place>,
    /// Whose instant has come, in the order of their reservations; the first is to go.
    called: BTreeMap<Ticket, Called>,
    /// Since when the first of them has been the first.
    first_since: Option<Instant>,
    /// Who did not go when it was first. It may go at any time.
    passed_by: BTreeMap<Ticket, Called>,
    /// Who is not to wait any longer.
    sent_away: BTreeSet<Ticket>,
    /// Places that nobody fits into, and that could not be undone.
    free: BTreeMap<Order, Place>,
    /// The label of the last ticket.
    last: i128,
}

/// The waiters of one cost, and the places that they have.
#[derive(Debug, Default)]
pub(super) struct Equals {
    waiters: BTreeMap<Ticket, Waiter>,
    pub(super) places: BTreeSet<Order>,
}

impl Equals {
    pub(super) fn is_unused(&self) -> bool {
        self.waiters.is_empty() && self.places.is_empty()
    }
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    /// When its timer wakes it.
    alarm: Option<Instant>,
    /// Whether it can be sent away.
    patient: bool,
}

#[derive(Debug)]
struct Called {
    place: Place,
    waker: Option<Waker>,
}

/// What a waiter is told that asks for its turn.
#[derive(Debug)]
pub(super) enum Told {
    /// It is its turn, at this place.
    Go(Place),
    /// It is not, and will not be before then, unless it is woken.
    Wait(Instant),
    /// It is not to wait any longer.
    SentAway,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.costs.is_empty() && self.called.is_empty() && self.passed_by.is_empty()
    }

    /// Lets a waiter in, with the place that it has reserved. Returns the place that nobody needs
    /// then, if there was a better one.
    pub(super) fn enter(
        &mut self,
        own: Place,
        patient: bool,
        now: Instant,
    ) -> (Ticket, Option<Place>) {
        let ticket = self.ticket(&own);
        let equals = self.costs.entry(own.units).or_default();
        equals.waiters.insert(ticket, Waiter { patient, ..Waiter::default() });
        self.add(own);
        (ticket, self.better(own, now))
    }

    /// A ticket that stands where the place does among those of its cost.
    fn ticket(&mut self, own: &Place) -> Ticket {
        let number = own.order.number();
        if let Some(equals) = self.costs.get(&own.units) {
            let behind = equals.places.range(own.order..).count();
            if behind > 0 {
                let mut from_last = equals.waiters.keys().rev().skip(behind.saturating_sub(1));
                let next = from_last.next().map_or(self.last, |next| next.label);
                let label = match from_last.next() {
                    Some(before) => before.label.midpoint(next),
                    None => next.saturating_sub(GAP),
                };
                return Ticket { label, number };
            }
        }
        self.last = self.last.saturating_add(GAP);
        Ticket { label: self.last, number }
    }

    /// Takes a free place for one that has just come, if there is a better one than its own.
    fn better(&mut self, own: Place, now: Instant) -> Option<Place> {
        self.free.retain(|_, place| place.due > now);
        let fits = |place: &&Place| place.order < own.order && place.units >= own.units;
        let better = self.free.values().find(fits).copied()?;
        self.free.remove(&better.order);
        self.add(Place { units: own.units, ..better });
        self.hand_on(own.order, own.units)
    }

    /// Offers a place to those behind it. Returns the place that nobody needs then.
    pub(super) fn offer(&mut self, place: Place, wakers: &mut Wakers) -> Option<Place> {
        self.add(place);
        let free = self.hand_on(place.order, place.units);
        self.wake_first(None, wakers);
        free
    }

    /// Takes a place back that could not be undone: for whoever has come meanwhile, or else for those
    /// who come later, as long as there are waiters. Returns the place that nobody needs then, if
    /// it is another one.
    pub(super) fn take_back(&mut self, place: Place, wakers: &mut Wakers) -> Option<Place> {
        if self.is_empty() {
            return None;
        }
        let left = self.offer(place, wakers)?;
        if left.order != place.order {
            return Some(left);
        }
        if self.free.len() < KEPT {
            self.free.insert(left.order, left);
        }
        None
    }

    /// Says what a waiter has to do that reserved `own`.
    pub(super) fn poll(
        &mut self,
        ticket: Ticket,
        own: &Place,
        waker: &Waker,
        now: Instant,
        wakers: &mut Wakers,
    ) -> Told {
        self.call_due(now);
        let told = self.told(ticket, own, waker, now, wakers);
        // It is on its way already, or it has to wait for whoever is first.
        self.wake_first(Some(ticket), wakers);
        told
    }

    fn told(
        &mut self,
        ticket: Ticket,
        own: &Place,
        waker: &Waker,
        now: Instant,
        wakers: &mut Wakers,
    ) -> Told {
        if let Some(called) = self.passed_by.get(&ticket) {
            return Told::Go(called.place);
        }
        if self.called.contains_key(&ticket) {
            return self.told_when_called(ticket, waker, now, wakers);
        }
        let first = self.places.first_key_value().map(|(_, place)| (place.units, place.due));
        let waiting = self.costs.get_mut(&own.units);
        let Some(equals) = waiting.filter(|equals| equals.waiters.contains_key(&ticket)) else {
            self.sent_away.remove(&ticket);
            return Told::SentAway;
        };
        let is_next = equals.waiters.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let until = match first {
            Some((units, due)) if units == own.units && is_next => due,
            // Its own instant has come, but not that of the place before it.
            Some((_, due)) if own.due <= now => due,
            _ => own.due,
        };
        if let Some(waiter) = equals.waiters.get_mut(&ticket) {
            waiter.alarm = Some(until);
            wakers.dead.extend(remember(&mut waiter.waker, waker));
        }
        Told::Wait(until)
    }

    fn told_when_called(
        &mut self,
        ticket: Ticket,
        waker: &Waker,
        now: Instant,
        wakers: &mut Wakers,
    ) -> Told {
        let since = *self.first_since.get_or_insert(now);
        let late = since.checked_add(PATIENCE).unwrap_or(now);
        loop {
            let Some(mut first) = self.called.first_entry() else { return Told::SentAway };
            if *first.key() == ticket {
                wakers.dead.extend(remember(&mut first.get_mut().waker, waker));
                return Told::Go(first.get().place);
            }
            if now < late {
                if let Some(called) = self.called.get_mut(&ticket) {
                    wakers.dead.extend(remember(&mut called.waker, waker));
                }
                return Told::Wait(late);
            }
            // Those between the first and this one have had no chance to go: they are woken.
            let (idle, mut called) = first.remove_entry();
            wakers.wake.extend(called.waker.take());
            self.passed_by.insert(idle, called);
            self.first_since = Some(now);
        }
    }

    /// Lets those behind go: a waiter whose turn it was is on its way.
    pub(super) fn gone(&mut self, ticket: Ticket, now: Instant, wakers: &mut Wakers) {
        self.uncall(ticket, now, wakers);
        self.wake_first(Some(ticket), wakers);
    }

    /// Lets a waiter out that gives up. Returns the place that nobody needs then.
    pub(super) fn leave(
        &mut self,
        ticket: Ticket,
        own: &Place,
        now: Instant,
        wakers: &mut Wakers,
    ) -> Option<Place> {
        self.call_due(now);
        self.sent_away.remove(&ticket);
        // A place whose instant has come is of no use to anybody else: with it, work of that
        // instant would run at another.
        let left = self.uncall(ticket, now, wakers).or_else(|| {
            let equals = self.costs.get_mut(&own.units)?;
            wakers.dead.extend(equals.waiters.remove(&ticket)?.waker);
            // Its place is this one or, once it has moved up, one before. Any will do: they are
            // all of one cost, and those behind whichever is handed on move up.
            let place = equals.places.range(..=own.order).next_back().or(equals.places.first());
            let place = *place?;
            self.hand_on(place, own.units)
        });
        self.wake_first(Some(ticket), wakers);
        left
    }

    /// Sends those away whose turn would come after `end`. Returns the places that nobody needs
    /// then, the last one first.
    pub(super) fn close(&mut self, end: Instant, now: Instant, wakers: &mut Wakers) -> Vec<Place> {
        self.call_due(now);
        let mut late = Vec::new();
        for (&units, equals) in &self.costs {
            let turns = equals.waiters.iter().zip(&equals.places);
            let is_late = |order| self.places.get(order).is_some_and(|place| place.due > end);
            late.extend(
                turns
                    .filter(|((_, waiter), place)| waiter.patient && is_late(place))
                    .map(|((ticket, _), place)| (*ticket, *place, units)),
            );
        }
        late.sort_unstable_by_key(|&(_, place, _)| std::cmp::Reverse(place));
        let mut left = Vec::new();
        for (ticket, place, units) in late {
            let Some(equals) = self.costs.get_mut(&units) else { continue };
            wakers.wake.extend(equals.waiters.remove(&ticket).and_then(|waiter| waiter.waker));
            let place = equals.places.range(..=place).next_back().or(equals.places.first());
            let Some(&place) = place else { continue };
            left.extend(self.hand_on(place, units));
            self.sent_away.insert(ticket);
        }
        self.wake_first(None, wakers);
        left
    }

    fn add(&mut self, place: Place) {
        self.places.insert(place.order, place);
        self.costs.entry(place.units).or_default().places.insert(place.order);
    }

    /// Calls every waiter whose instant has come.
    fn call_due(&mut self, now: Instant) {
        while let Some(place) = self.places.first_entry().filter(|first| first.get().due <= now) {
            let (order, place) = place.remove_entry();
            let Some(equals) = self.costs.get_mut(&place.units) else { continue };
            equals.places.remove(&order);
            if let Some((order, waiter)) = equals.waiters.pop_first() {
                if self.called.first_key_value().is_none_or(|(first, _)| order < *first) {
                    self.first_since = Some(now);
                }
                self.called.insert(order, Called { place, waker: waiter.waker });
            }
            self.forget_if_unused(place.units);
        }
    }

    fn uncall(&mut self, ticket: Ticket, now: Instant, wakers: &mut Wakers) -> Option<Place> {
        if let Some(idle) = self.passed_by.remove(&ticket) {
            wakers.dead.extend(idle.waker);
            return Some(idle.place);
        }
        if self.called.first_key_value().is_some_and(|(first, _)| *first == ticket) {
            self.first_since = Some(now);
        }
        let called = self.called.remove(&ticket)?;
        wakers.dead.extend(called.waker);
        Some(called.place)
    }

    /// Wakes whoever is to go, and whoever waits for the first place without knowing it.
    fn wake_first(&mut self, except: Option<Ticket>, wakers: &mut Wakers) {
        if let Some(mut first) = self.called.first_entry()
            && Some(*first.key()) != except
        {
            wakers.wake.extend(first.get_mut().waker.take());
        }
        if let Some(place) = self.places.first_key_value().map(|(_, place)| *place)
            && let Some(equals) = self.costs.get_mut(&place.units)
            && let Some(mut next) = equals.waiters.first_entry()
            && Some(*next.key()) != except
            && next.get().alarm.is_none_or(|alarm| alarm > place.due)
        {
            next.get_mut().alarm = Some(place.due);
            wakers.wake.extend(next.get_mut().waker.take());
        }
    }
}
