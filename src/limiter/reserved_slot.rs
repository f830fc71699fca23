//! What a reservation holds that has to wait, whatever its store: it is booked, has a place, gets
//! its turn, and uses it.

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

/// A reservation that has to wait. Dropped, it is cancelled.
#[derive(Debug)]
pub(crate) enum ReservedSlot {
    /// A place in line, in the memory store.
    #[cfg(feature = "memory")]
    Line(LineSlot),
    /// An instant, in a store that other processes take from as well.
    Slot(Box<HeldSlot>),
}

impl ReservedSlot {
    /// The instant that it was told.
    pub(crate) const fn at(&self) -> Timestamp {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.promised(),
            Self::Slot(slot) => slot.at(),
        }
    }

    /// Keeps what was reserved without waiting for it: the work will run at its instant.
    #[cfg_attr(
        not(feature = "memory"),
        expect(unused_variables, reason = "no line outlives a reset")
    )]
    pub(crate) fn keep<'g>(self, grants: impl Iterator<Item = &'g mut Grant>) {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.keep(grants),
            Self::Slot(slot) => slot.keep(),
        }
    }

    /// Begins to wait. A `drainable` waiter can be sent away.
    pub(super) fn enter(self, drainable: bool) -> QueueEntry {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => QueueEntry::Line(slot),
            Self::Slot(slot) => QueueEntry::Slot(WaiterHandle::enter(*slot, drainable)),
        }
    }
}

/// Where a request waits. Dropped, it leaves.
#[derive(Debug)]
pub(super) enum QueueEntry {
    #[cfg(feature = "memory")]
    Line(LineSlot),
    Slot(WaiterHandle),
}

/// What a request is told that waits.
pub(super) enum EntryPoll {
    Granted(PendingTurn),
    /// Not before it is woken, or this instant.
    Wait(QueueEntry, Instant),
    Drained,
}

impl QueueEntry {
    /// When its turn comes if no other leaves.
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

    /// The instant has come until which it was to wait.
    pub(super) fn grant(&self) {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.grant(),
            Self::Slot(_) => {}
        }
    }
}

/// A turn that has come and was not used yet. Dropped, its tokens are given back.
#[derive(Debug)]
pub(crate) enum PendingTurn {
    #[cfg(feature = "memory")]
    Line(LineTurn),
    Slot(WaiterHandle),
}

impl PendingTurn {
    /// Notes which of the buckets were reset while it stood in line there.
    #[cfg_attr(
        not(feature = "memory"),
        expect(unused_variables, reason = "no line outlives a reset")
    )]
    pub(crate) fn outlive_resets<'g>(&self, grants: impl Iterator<Item = &'g mut Grant>) {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(turn) => turn.slot.outlive_resets(grants),
            Self::Slot(_) => {}
        }
    }

    /// The work runs now: nothing is given back any more.
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

    /// The buckets, and how each of them stands at that instant for the next request: later
    /// reservations count on whatever there is.
    pub(crate) fn bucket_states(&self) -> SmallVec<[(&QueueBucket, State); 2]> {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(turn) => {
                let stand = |(bucket, left): (_, State)| {
                    let bucket: &QueueBucket = bucket;
                    let State { value, ts } = bucket.bucket().refresh(left, turn.at);
                    (bucket, State { value: value.min(0), ts })
                };
                turn.slot.buckets().map(stand).collect()
            }
            Self::Slot { turn, .. } => turn.iter().flat_map(SlotTurn::bucket_states).collect(),
        }
    }
}
