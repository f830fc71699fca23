//! A waiter's handle: its stay in the queue, and then its turn.

use std::sync::Arc;
use std::task::Context;

use super::bucket_set::QueueBucket;
use super::due_waiters::WaiterAnswer;
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
/// gives its slot up.
#[derive(Debug)]
pub(crate) struct WaiterHandle {
    queue: Arc<SharedQueue>,
    who: WaiterId,
    went: WaiterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaiterState {
    No,
    /// It is its turn, and those behind wait until it is on its way.
    First,
    /// Those behind were let go.
    Passed,
    /// Its work runs.
    Used,
}

/// The turn that was used.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The instant of its slot.
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
    /// Stands in the queue with what was booked. None if it is `drainable`, and its turn comes
    /// after the end of all waiting.
    pub(super) fn enter(booking: HeldSlot, drainable: bool) -> Option<Self> {
        let (queue, place) = booking.hand_over();
        let now = queue.now();
        let (who, turn) = queue.with(|line, _| {
            line.outside = line.outside.saturating_sub(1);
            let who = line.enter(place, drainable, now);
            let turn = line.turn(&who);
            (who, turn)
        });
        queue.undo_free_slots();
        let spot = Self { queue, who, went: WaiterState::No };
        // Only now, as a waiter that enters while the queue is being drained may be overlooked there.
        let end = spot.end().filter(|_| drainable);
        end.is_none_or(|end| turn <= end).then_some(spot)
    }

    pub(super) fn poll(&mut self, cx: &Context<'_>) -> WaiterAnswer {
        let (who, now) = (&self.who, self.queue.now());
        let told = self.queue.with(|line, wakers| line.poll(who, cx.waker(), now, wakers));
        if matches!(told, WaiterAnswer::Go) {
            self.went = WaiterState::First;
        }
        told
    }

    /// Lets those behind go.
    pub(crate) fn pass(&mut self) {
        if self.went == WaiterState::First {
            self.went = WaiterState::Passed;
            let (who, now) = (&self.who, self.queue.now());
            self.queue.with(|line, wakers| line.pass(who, now, wakers));
        }
    }

    /// Is woken when all waiting comes to an end.
    pub(super) fn wake_on_drain(&self, cx: &Context<'_>) {
        let who = &self.who;
        self.queue.with(|line, wakers| line.wake_on_drain(who, cx.waker(), wakers));
    }

    /// After which no request is to wait.
    pub(super) fn end(&self) -> Option<LocalInstant> {
        self.queue.end()
    }

    /// The work runs now: nothing is given back when this is dropped.
    pub(crate) fn used(mut self) -> Option<Turn> {
        self.went = WaiterState::Used;
        let (who, now) = (&self.who, self.queue.now());
        let place = self.queue.with(|line, wakers| line.used(who, now, wakers))?;
        self.queue.undo_free_slots();
        Some(Turn { at: place.order.at(), left: place.grant.left, queue: Arc::clone(&self.queue) })
    }

    /// The instant that it was promised.
    pub(crate) const fn at(&self) -> Timestamp {
        self.who.promised()
    }

    pub(super) fn queue(&self) -> &SharedQueue {
        &self.queue
    }
}

impl Drop for WaiterHandle {
    fn drop(&mut self) {
        if self.went != WaiterState::Used {
            let (who, now) = (&self.who, self.queue.now());
            self.queue.with(|line, wakers| line.leave(who, now, wakers));
            self.queue.undo_free_slots();
        }
    }
}
