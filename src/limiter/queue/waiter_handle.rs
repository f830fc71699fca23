//! A waiter's handle: its stay in the queue, and then its turn.

use std::sync::Arc;
use std::task::Context;

use tokio::time::Instant;

use super::bucket_set::QueueBucket;
use super::drained::Drained;
use super::granting::WaiterAnswer;
use super::held_slot::HeldSlot;
use super::local_instant::LocalInstant;
use super::registry::SharedQueue;
use super::unit_vec::StateVec;
use super::wait_queue::WaiterId;
use crate::algebra::State;
use crate::clock::Timestamp;

/// A waiter in the queue, and then its turn.
///
/// Dropped in the queue, it leaves; dropped after its turn has come but before it was used, it
/// gives up what it was granted.
#[derive(Debug)]
pub(crate) struct WaiterHandle {
    queue: Arc<SharedQueue>,
    who: WaiterId,
    turn: LocalInstant,
    /// Whether its work runs.
    used: bool,
}

/// The turn that was used.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The instant at which its work may run.
    pub(crate) at: Timestamp,
    /// What its reservation had left in the buckets.
    left: StateVec,
    queue: Arc<SharedQueue>,
}

impl Turn {
    /// The buckets, and how each of them stands at that instant for the next request: later
    /// reservations count on whatever there is.
    pub(crate) fn stands(&self) -> impl Iterator<Item = (&QueueBucket, State)> {
        let parts = self.queue.whose().parts().iter().zip(self.left.as_slice());
        parts.map(|(part, left)| {
            let State { value, ts } = part.bucket().refresh(*left, self.at);
            (part, State { value: value.min(0), ts })
        })
    }
}

impl WaiterHandle {
    /// Stands in the queue with what was booked. If it is `drainable`, it can be sent away.
    pub(crate) fn enter(booking: HeldSlot, drainable: bool) -> Self {
        let (queue, slot) = booking.hand_over();
        let now = queue.now();
        let (who, turn) = queue.with(|line, _| line.enter(slot, drainable, now));
        queue.end_reservation();
        queue.undo_free_slots();
        Self { queue, who, turn, used: false }
    }

    /// When its turn comes if no other leaves.
    pub(crate) fn turn(&self) -> Instant {
        self.queue.epoch().instant(self.turn)
    }

    /// Until when it has to wait, unless it is woken before; `None` if its turn has come.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Result<Option<Instant>, Drained> {
        let now = self.queue.now();
        match self.queue.with(|line, wakers| line.poll(self.who, cx.waker(), now, wakers)) {
            WaiterAnswer::Go => Ok(None),
            WaiterAnswer::Wait(until) => Ok(Some(self.queue.epoch().instant(until))),
            WaiterAnswer::Drained => Err(Drained),
        }
    }

    /// The work runs now: nothing is given back when this is dropped.
    pub(crate) fn used(mut self) -> Option<Turn> {
        self.used = true;
        let granted = self.queue.with(|line, _| line.used(self.who))?;
        self.queue.undo_free_slots();
        Some(Turn { at: granted.at, left: granted.left, queue: Arc::clone(&self.queue) })
    }

    /// The instant that it was promised.
    pub(crate) const fn at(&self) -> Timestamp {
        self.who.told
    }
}

impl Drop for WaiterHandle {
    fn drop(&mut self) {
        if !self.used {
            let (who, now) = (self.who, self.queue.now());
            let returned = self.queue.with(|line, wakers| line.leave(who, now, wakers));
            if let Some(units) = returned {
                self.queue.give_back(&units);
            }
            self.queue.undo_free_slots();
        }
    }
}
