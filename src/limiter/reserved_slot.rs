//! A reservation that has to wait, the same for every store: its place, [`ReservedSlot`], and its
//! turn, [`PendingTurn`] and then [`UsedTurn`].
//!
//! Dropping any but the last cancels the reservation.

use std::task::Context;

use tokio::time::Instant;

use super::grant::Grant;
#[cfg(feature = "memory")]
use super::line::LineSlot;
use super::queue::{HeldSlot, Unserved, UsedTurn};
use crate::clock::Timestamp;

/// A reservation that has to wait. Dropping it cancels the reservation.
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
            Self::Line(slot) => slot.at(),
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

    /// Begins to wait. Returns when its turn comes if no other waiter leaves. A drain removes only
    /// drainable waiters.
    pub(super) fn enter(&mut self, is_drainable: bool) -> Instant {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.turn(),
            Self::Slot(slot) => slot.enter(is_drainable),
        }
    }

    /// Until when it has to wait unless it is woken before, or `None` if its turn has come.
    ///
    /// # Errors
    ///
    /// If the limiter was drained and its turn would come too late.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Result<Option<Instant>, Unserved> {
        match self {
            #[cfg(feature = "memory")]
            Self::Line(slot) => slot.poll(cx.waker()),
            Self::Slot(slot) => slot.poll(cx),
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
pub(crate) struct PendingTurn(pub(super) ReservedSlot);

impl PendingTurn {
    /// Notes in the grants which buckets were reset while the waiter stood in their lines.
    #[cfg_attr(
        not(feature = "memory"),
        expect(unused_variables, reason = "only lines of the memory store note resets")
    )]
    pub(crate) fn outlive_resets<'g>(&self, grants: impl Iterator<Item = &'g mut Grant>) {
        match &self.0 {
            #[cfg(feature = "memory")]
            ReservedSlot::Line(slot) => slot.outlive_resets(grants),
            ReservedSlot::Slot(_) => {}
        }
    }

    /// Uses the turn, since the work runs now. Nothing is given back after that.
    pub(crate) fn use_up(self) -> UsedTurn {
        match self.0 {
            #[cfg(feature = "memory")]
            ReservedSlot::Line(slot) => slot.use_up(),
            ReservedSlot::Slot(slot) => slot.use_up(),
        }
    }
}
