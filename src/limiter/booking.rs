//! What a reservation holds that has to wait, whatever its store: it waits, gets its turn, and uses
//! it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use smallvec::SmallVec;

#[cfg(feature = "memory")]
use super::line::{LineSlot, LineTurn, LineWait};
#[cfg(not(feature = "memory"))]
use super::no_line::{LineSlot, LineTurn, LineWait};
use super::queue::{Drained, HeldSlot, QueueBucket, QueueRegistry, QueueWait, Turn, WaiterHandle};
use crate::algebra::State;
use crate::clock::Timestamp;

/// A reservation that has to wait. Dropped, it is cancelled.
#[derive(Debug)]
pub(crate) enum Booking {
    /// A place in line, in the memory store.
    Line(LineSlot),
    /// An instant, in a store that other processes take from as well.
    Slot(HeldSlot),
}

impl Booking {
    /// The instant that it was told.
    pub(crate) const fn at(&self) -> Timestamp {
        match self {
            Self::Line(slot) => slot.told(),
            Self::Slot(slot) => slot.at(),
        }
    }

    /// Keeps what was reserved without waiting for it: the work will run at its instant.
    pub(crate) fn keep(self) {
        match self {
            Self::Line(slot) => slot.keep(),
            Self::Slot(slot) => slot.keep(),
        }
    }

    /// Waits for the turn, and for `jitter` longer. The limiter whose registry is named can send it
    /// away.
    pub(crate) fn wait(self, jitter: Duration, drained_by: Option<&Arc<QueueRegistry>>) -> Wait {
        match self {
            Self::Line(slot) => {
                Wait::Line { wait: LineWait::new(slot, jitter, drained_by.cloned()) }
            }
            Self::Slot(slot) => {
                Wait::Slot { wait: QueueWait::new(slot, jitter, drained_by.is_some()) }
            }
        }
    }
}

pin_project! {
    /// Waits for a turn. Dropped, the reservation is cancelled.
    #[derive(Debug)]
    #[project = WaitProjection]
    pub(crate) enum Wait {
        Line { #[pin] wait: LineWait },
        Slot { #[pin] wait: QueueWait },
    }
}

impl Future for Wait {
    type Output = Result<PendingTurn, Drained>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            WaitProjection::Line { wait } => wait.poll(cx).map(|turn| turn.map(PendingTurn::Line)),
            WaitProjection::Slot { wait } => wait.poll(cx).map(|turn| turn.map(PendingTurn::Slot)),
        }
    }
}

/// A turn that has come and was not used yet. Dropped, its tokens are given back.
#[derive(Debug)]
pub(crate) enum PendingTurn {
    Line(LineTurn),
    Slot(WaiterHandle),
}

impl PendingTurn {
    /// Those behind need not wait until it is used.
    pub(crate) fn pass(&mut self) {
        if let Self::Slot(slot) = self {
            slot.pass();
        }
    }

    /// The work runs now: nothing is given back any more.
    pub(crate) fn use_up(self) -> UsedTurn {
        match self {
            Self::Line(mut turn) => {
                turn.slot.use_up();
                UsedTurn::Line(turn)
            }
            Self::Slot(slot) => {
                let at = slot.at();
                UsedTurn::Slot { at, turn: slot.used() }
            }
        }
    }
}

/// A turn that was used.
#[derive(Debug)]
pub(crate) enum UsedTurn {
    Line(LineTurn),
    Slot { at: Timestamp, turn: Option<Turn> },
}

impl UsedTurn {
    /// The instant from which the work may run.
    pub(crate) fn at(&self) -> Timestamp {
        match self {
            Self::Line(turn) => turn.at,
            Self::Slot { at, turn } => turn.as_ref().map_or(*at, |turn| turn.at),
        }
    }

    /// The buckets, and how each of them stands at that instant for the next request: later
    /// reservations count on whatever there is.
    pub(crate) fn stands(&self) -> SmallVec<[(&QueueBucket, State); 2]> {
        match self {
            Self::Line(turn) => {
                let stand = |(bucket, left): (_, State)| {
                    let bucket: &QueueBucket = bucket;
                    let State { value, ts } = bucket.bucket().refresh(left, turn.at);
                    (bucket, State { value: value.min(0), ts })
                };
                turn.slot.buckets().map(stand).collect()
            }
            Self::Slot { turn, .. } => turn.iter().flat_map(Turn::stands).collect(),
        }
    }
}
