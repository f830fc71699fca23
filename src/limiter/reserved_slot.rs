//! The stages of a reservation that has to wait, the same for every store: [`ReservedSlot`],
//! [`QueueEntry`], [`PendingTurn`], [`UsedTurn`].
//!
//! Each stage is consumed by the next one. Dropping any but the last cancels the reservation.

use std::task::Context;
#[cfg(feature = "memory")]
use std::task::Poll;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::grant::Grant;
#[cfg(feature = "memory")]
use super::line::{LineSlot, LineTurn};
use super::queue::{Drained, HeldSlot, QueueBucket, SlotTurn, WaiterHandle};
use crate::algebra::State;
use crate::clock::Timestamp;

/// A reservation that has to wait and was not polled yet. Dropping it cancels the reservation.
#[derive(Debug)]
pub(crate) enum ReservedSlot {
    /// A place in the lines of the memory store.
    #[cfg(feature = "memory")]
    Line(LineSlot),
    /// A slot in a store that other processes use as well.
    Slot(Box<HeldSlot>),
}

impl ReservedSlot {
    /// The instant that the caller was told.
    pub(crate) const fn at(&self) -> Timestamp {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.promised(),
            Self::Slot(slot) => slot.at(),
        }
    }

    /// Spends the slot without waiting for it: the work is planned for its instant.
    #[cfg_attr(
        not(feature = "memory"),
        expect(unused_variables, reason = "only lines of the memory store note resets")
    )]
    pub(crate) fn keep<'g>(self, grants: impl Iterator<Item = &'g mut Grant>) {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.keep(grants),
            Self::Slot(slot) => slot.keep(),
        }
    }

    /// Begins to wait. A drain removes only `drainable` waiters.
    pub(super) fn enter(self, drainable: bool) -> QueueEntry {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => QueueEntry::Line(slot),
            Self::Slot(slot) => QueueEntry::Slot(WaiterHandle::enter(*slot, drainable)),
        }
    }
}

/// A waiter in a queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) enum QueueEntry {
    #[cfg(feature = "memory")]
    Line(LineSlot),
    Slot(WaiterHandle),
}

/// The answer to a waiter that is polled.
pub(super) enum EntryPoll {
    Granted(PendingTurn),
    /// Its turn has not come: it is woken then, and polls again at this instant at the latest.
    Wait(QueueEntry, Instant),
    Drained,
}

impl QueueEntry {
    /// When its turn comes if no other waiter leaves.
    pub(super) fn turn(&self) -> Instant {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.turn(),
            Self::Slot(waiter) => waiter.turn(),
        }
    }

    pub(super) fn poll(self, cx: &Context<'_>) -> EntryPoll {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => match slot.poll(cx.waker()) {
                Poll::Ready(Ok(at)) => EntryPoll::Granted(PendingTurn::Line(LineTurn { slot, at })),
                Poll::Pending => {
                    let until = slot.deadline();
                    EntryPoll::Wait(Self::Line(slot), until)
                }
                Poll::Ready(Err(Drained)) => EntryPoll::Drained,
            },
            Self::Slot(waiter) => match waiter.poll(cx) {
                Ok(None) => EntryPoll::Granted(PendingTurn::Slot(waiter)),
                Ok(Some(until)) => EntryPoll::Wait(Self::Slot(waiter), until),
                Err(Drained) => EntryPoll::Drained,
            },
        }
    }

    /// Grants the waiter, since the instant until which it was to wait has come.
    pub(super) fn grant(&self) {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.grant(),
            Self::Slot(_) => {}
        }
    }
}

/// A turn that has come and was not used yet. Dropping it gives its tokens back.
#[derive(Debug)]
pub(crate) enum PendingTurn {
    #[cfg(feature = "memory")]
    Line(LineTurn),
    Slot(WaiterHandle),
}

impl PendingTurn {
    /// Notes in the grants which buckets were reset while the waiter stood in their lines.
    #[cfg_attr(
        not(feature = "memory"),
        expect(unused_variables, reason = "only lines of the memory store note resets")
    )]
    pub(crate) fn outlive_resets<'g>(&self, grants: impl Iterator<Item = &'g mut Grant>) {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(turn) => turn.slot.outlive_resets(grants),
            Self::Slot(_) => {}
        }
    }

    /// Uses the turn, since the work runs now. Nothing is given back after that.
    pub(crate) fn use_up(self) -> UsedTurn {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(mut turn) => {
                turn.slot.use_up();
                UsedTurn::Line(turn)
            }
            Self::Slot(slot) => {
                let at = slot.at();
                UsedTurn::Slot { at, turn: slot.use_up() }
            }
        }
    }
}

/// A turn that was used.
#[derive(Debug)]
pub(crate) enum UsedTurn {
    #[cfg(feature = "memory")]
    Line(LineTurn),
    Slot {
        at: Timestamp,
        turn: Option<SlotTurn>,
    },
}

impl UsedTurn {
    /// The instant from which the work may run.
    pub(crate) fn at(&self) -> Timestamp {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(turn) => turn.at,
            Self::Slot { at, turn } => turn.as_ref().map_or(*at, |turn| turn.at),
        }
    }

    /// The buckets, and how each of them stands at that instant for the next request.
    pub(crate) fn bucket_states(&self) -> SmallVec<[(&QueueBucket, State); 2]> {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(turn) => {
                let stand = |(bucket, left): (_, State)| {
                    let bucket: &QueueBucket = bucket;
                    (bucket, bucket.state_at_turn(left, turn.at))
                };
                turn.slot.buckets().map(stand).collect()
            }
            Self::Slot { turn, .. } => turn.iter().flat_map(SlotTurn::bucket_states).collect(),
        }
    }
}
