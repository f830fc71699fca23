//! A reservation of a store that other processes use as well, from the store's answer until its
//! work runs.

use std::sync::Arc;
use std::task::Context;

use tokio::time::Instant;

use super::registry::{QueueRegistry, SharedQueue};
use super::reserved_slot::{ReservedSlot, paid_buckets, sort_taken};
use super::time_slot::{SlotKey, TimeSlot};
use crate::clock::Timestamp;
use crate::limiter::events::QueueStep;
use crate::limiter::grant::Grant;

/// A slot that a reservation holds, then its place in the queue, then its turn.
///
/// It is held until it enters the queue: until then it keeps its instant, since the caller may have
/// planned the work for it. When it is dropped, it gives up what it has: the slot, its place, or
/// what it was granted.
#[derive(Debug)]
pub(crate) struct HeldSlot {
    queue: Arc<SharedQueue>,
    /// The slot as it was reserved. Its waiter may run by another one.
    own: TimeSlot,
    state: HeldState,
}

#[derive(Clone, Copy, Debug)]
enum HeldState {
    /// Not polled yet.
    Held,
    /// In the queue, or granted.
    Waiting,
    /// Nothing is given up any more.
    Used,
}

impl HeldSlot {
    /// Holds the slot of these grants, of which the store reserved all at `now`.
    ///
    /// What counts requests in flight has a slot of its own: it comes back when a request ends, and
    /// that request gives back nothing of a rate.
    pub(crate) fn hold<'g>(
        registry: &Arc<QueueRegistry>,
        grants: impl Iterator<Item = &'g Grant>,
        now: Timestamp,
    ) -> Box<dyn ReservedSlot> {
        let (in_flight, rates): (Vec<_>, Vec<_>) = grants.partition(|grant| grant.is_in_flight());
        let hold = |grants| Box::new(Self::new(registry, grants, now));
        match (rates.is_empty(), in_flight.is_empty()) {
            (false, false) => Box::new([hold(rates), hold(in_flight)]),
            (is_in_flight, _) => hold(if is_in_flight { in_flight } else { rates }),
        }
    }

    fn new(registry: &Arc<QueueRegistry>, grants: Vec<&Grant>, now: Timestamp) -> Self {
        let wait = grants.iter().map(|grant| grant.wait()).max();
        let at = now + wait.unwrap_or_default();
        let (buckets, taken) = sort_taken(paid_buckets(grants.into_iter()).collect());
        let made = registry.event(now);
        let after = buckets.iter().zip(&taken);
        let after = after.map(|(part, taken)| (part.bucket(), taken.state()));
        let key = SlotKey::new(after, at, made.number);
        let own = TimeSlot { key, taken, made, retries: 0 };
        Self { queue: registry.queue_for(buckets, now), own, state: HeldState::Held }
    }
}

impl ReservedSlot for HeldSlot {
    fn at(&self) -> Timestamp {
        self.own.key.at()
    }

    fn keep(mut self: Box<Self>, _: &mut dyn Iterator<Item = &mut Grant>) {
        self.state = HeldState::Used;
    }

    fn enter(&mut self, is_drainable: bool) -> Instant {
        self.state = HeldState::Waiting;
        let (own, now) = (self.own.clone(), Instant::now());
        let turn = self.queue.with(|waiters| waiters.enter(own, is_drainable, now));
        // The waiter may have taken an earlier slot, and its own is then free.
        self.queue.undo_free_slots();
        turn
    }

    fn poll(&mut self, cx: &Context<'_>) -> Result<Option<Instant>, QueueStep> {
        let now = Instant::now();
        self.queue.with(|waiters| waiters.poll(self.own.key, cx.waker(), now))
    }

    /// It may run by what another request has paid.
    fn note_paid(&self, grants: &mut dyn Iterator<Item = &mut Grant>) {
        for grant in grants {
            grant.note_paid(|id, paid| {
                let place = self.queue.buckets.iter().position(|part| part.id() == id)?;
                let used = self.queue.with(|waiters| waiters.used(self.own.key, place))?;
                Some(paid.paid_like(&used))
            });
        }
    }

    fn use_up(mut self: Box<Self>) -> Timestamp {
        self.state = HeldState::Used;
        let granted = self.queue.with(|waiters| waiters.use_up(self.own.key));
        // If it runs by a free slot, its own is free.
        self.queue.undo_free_slots();
        granted.unwrap_or(self.at())
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let now = Instant::now();
        match self.state {
            HeldState::Held => {
                let own = self.own.clone();
                self.queue.with(|waiters| waiters.offer(own, now));
            }
            HeldState::Waiting => {
                let own = self.own.key;
                if let Some(unused) = self.queue.with(|waiters| waiters.leave(own, now)) {
                    // After the unlock: returning locks the registry, which comes before any queue.
                    self.queue.give_back(&unused);
                }
            }
            HeldState::Used => return,
        }
        self.queue.undo_free_slots();
    }
}

/// A reservation with two slots, each in a queue of its own. Its work runs once both have their turn.
impl ReservedSlot for [Box<HeldSlot>; 2] {
    fn at(&self) -> Timestamp {
        let [first, second] = self;
        first.at().max(second.at())
    }

    fn keep(self: Box<Self>, grants: &mut dyn Iterator<Item = &mut Grant>) {
        let [first, second] = *self;
        first.keep(grants);
        second.keep(grants);
    }

    fn enter(&mut self, is_drainable: bool) -> Instant {
        let [first, second] = self;
        first.enter(is_drainable).max(second.enter(is_drainable))
    }

    fn poll(&mut self, cx: &Context<'_>) -> Result<Option<Instant>, QueueStep> {
        let [first, second] = self;
        let until = [first.poll(cx)?, second.poll(cx)?];
        Ok(until.into_iter().flatten().min())
    }

    fn note_paid(&self, grants: &mut dyn Iterator<Item = &mut Grant>) {
        let [first, second] = self;
        for grant in grants {
            first.note_paid(&mut std::iter::once(&mut *grant));
            second.note_paid(&mut std::iter::once(grant));
        }
    }

    fn use_up(self: Box<Self>) -> Timestamp {
        let [first, second] = *self;
        first.use_up().max(second.use_up())
    }
}
