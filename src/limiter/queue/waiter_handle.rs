//! The handle of a waiter: from its first poll until its work runs.

use std::sync::Arc;
use std::task::Context;

use tokio::time::Instant;

use super::bucket_set::QueueBucket;
use super::drained::Drained;
use super::granting::WaiterPoll;
use super::held_slot::HeldSlot;
use super::local_instant::LocalInstant;
use super::registry::SharedQueue;
use super::unit_vec::StateVec;
use super::wait_queue::WaiterId;
use crate::algebra::State;
use crate::clock::Timestamp;

/// A waiter in the queue, and then its turn.
///
/// When it is dropped while it waits, it leaves the queue. When it is dropped after its turn has
/// come, but before [`use_up`](Self::use_up), it gives up what it was granted.
#[derive(Debug)]
pub(crate) struct WaiterHandle {
    queue: Arc<SharedQueue>,
    id: WaiterId,
    /// When its turn was to come when it entered.
    turn: LocalInstant,
    /// Whether its work runs: then nothing is given up on drop.
    used: bool,
}

/// A turn that was used: the work of the waiter runs.
#[derive(Debug)]
pub(crate) struct SlotTurn {
    /// The instant from which its work may run.
    pub(crate) at: Timestamp,
    /// What the buckets held after its slot was reserved.
    after: StateVec,
    queue: Arc<SharedQueue>,
}

impl SlotTurn {
    /// The buckets, and how each of them stands at that instant for the next request.
    pub(crate) fn bucket_states(&self) -> impl Iterator<Item = (&QueueBucket, State)> {
        let parts = self.queue.buckets().parts().iter().zip(self.after.as_slice());
        parts.map(|(part, after)| (part, part.state_at_turn(*after, self.at)))
    }
}

impl WaiterHandle {
    /// Enters the queue with a slot. [`RateLimiter::drain`](crate::RateLimiter::drain) removes only
    /// `drainable` waiters.
    pub(crate) fn enter(slot: HeldSlot, drainable: bool) -> Self {
        let (queue, slot) = slot.into_parts();
        let now = queue.now();
        // The slot enters before it stops being counted as held: in the other order, another thread
        // could find the queue empty in between, and forget it with this waiter in it.
        let (id, turn) = queue.with(|waiters, _| waiters.enter(slot, drainable, now));
        queue.end_reservation();
        // The waiter may have taken an earlier slot, and its own is then free.
        queue.undo_free_slots();
        Self { queue, id, turn, used: false }
    }

    /// When its turn comes if no other waiter leaves.
    pub(crate) fn turn(&self) -> Instant {
        self.queue.epoch().instant(self.turn)
    }

    /// Until when it has to wait unless it is woken before, or `None` if its turn has come.
    ///
    /// # Errors
    ///
    /// If the limiter was drained and its turn would come too late.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Result<Option<Instant>, Drained> {
        let now = self.queue.now();
        match self.queue.with(|waiters, wakers| waiters.poll(self.id, cx.waker(), now, wakers)) {
            WaiterPoll::Granted => Ok(None),
            WaiterPoll::Wait(until) => Ok(Some(self.queue.epoch().instant(until))),
            WaiterPoll::Drained => Err(Drained),
        }
    }

    /// Uses the turn, since the work runs now. Nothing is given back after that.
    pub(crate) fn use_up(mut self) -> Option<SlotTurn> {
        self.used = true;
        let granted = self.queue.with(|waiters, _| waiters.take_granted(self.id))?;
        // Undoes nothing that could not be undone before, but the last waiter forgets the queue
        // here: no other call would notice that it is empty.
        self.queue.undo_free_slots();
        Some(SlotTurn { at: granted.at, after: granted.after, queue: Arc::clone(&self.queue) })
    }

    /// The instant that the waiter was told when it reserved.
    pub(crate) const fn at(&self) -> Timestamp {
        self.id.promised
    }
}

impl Drop for WaiterHandle {
    fn drop(&mut self) {
        if !self.used {
            let (id, now) = (self.id, self.queue.now());
            // Given back below, after the unlock: returning locks the registry, which comes before
            // any queue.
            let returned = self.queue.with(|waiters, wakers| waiters.leave(id, now, wakers));
            if let Some(units) = returned {
                self.queue.give_back(&units);
            }
            self.queue.undo_free_slots();
        }
    }
}
