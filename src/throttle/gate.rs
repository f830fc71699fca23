//! The place of the one item that waits.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
#[cfg(feature = "middleware")]
use std::time::Duration;

use super::item_charge::ItemCharge;
#[cfg(feature = "middleware")]
use crate::limiter::Limit;
use crate::limiter::RateLimited;

/// The wait of an item.
type Turn = Pin<Box<dyn Future<Output = Result<(), RateLimited>> + Send>>;

/// Holds one item until its tokens are there.
pub(super) struct Gate<T> {
    charge: ItemCharge,
    item: Option<T>,
    turn: ItemTurn,
}

enum ItemTurn {
    /// The item may pass. So may the next one that costs nothing.
    Granted,
    // Boxed, since the future borrows the limit from the charge that it owns. It also keeps the
    // adapters `Unpin`, as far as what they adapt is. The mutex, which is never locked, makes them
    // `Sync`: clients such as reqwest take no other bodies.
    Pending(Mutex<Turn>),
    Failed(RateLimited),
}

impl<T> Gate<T> {
    pub(super) const fn new(charge: ItemCharge) -> Self {
        Self { charge, item: None, turn: ItemTurn::Granted }
    }

    /// The limit, with the numbers in force.
    #[cfg(feature = "middleware")]
    pub(super) fn limit(&self) -> &Limit {
        self.charge.limiter.state.replacements.shared(&self.charge.limit)
    }

    #[cfg(feature = "middleware")]
    pub(super) const fn max_wait(&self) -> Duration {
        self.charge.max_wait
    }

    pub(super) const fn item(&self) -> Option<&T> {
        self.item.as_ref()
    }

    /// Why no item passes any more.
    pub(super) const fn failure(&self) -> Option<&RateLimited> {
        match &self.turn {
            ItemTurn::Failed(error) => Some(error),
            ItemTurn::Granted | ItemTurn::Pending(_) => None,
        }
    }

    /// Takes an item in. The gate has to be empty and not have failed.
    ///
    /// The limit is asked at the next poll. An item that costs nothing may pass at once: it must not
    /// stand in the line of those that pay.
    pub(super) fn hold(&mut self, item: T, cost: u64) {
        self.item = Some(item);
        self.turn = match cost {
            0 => ItemTurn::Granted,
            _ => ItemTurn::Pending(Mutex::new(Box::pin(self.charge.clone().wait_for(cost)))),
        };
    }

    /// Waits until the item may pass.
    ///
    /// # Errors
    ///
    /// If the limit does not let it pass. Each later poll returns the same error.
    pub(super) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RateLimited>> {
        if let ItemTurn::Pending(turn) = &mut self.turn {
            let turn = turn.get_mut().unwrap_or_else(PoisonError::into_inner);
            self.turn = match ready!(turn.as_mut().poll(cx)) {
                Ok(()) => ItemTurn::Granted,
                Err(error) => ItemTurn::Failed(error),
            };
        }
        Poll::Ready(self.failure().cloned().map_or(Ok(()), Err))
    }

    /// Lets the item out; it must have been granted.
    pub(super) const fn take(&mut self) -> Option<T> {
        self.item.take()
    }

    /// Gives up the turn of the item, and returns the item.
    pub(super) fn into_item(self) -> Option<T> {
        self.item
    }
}

impl<T> fmt::Debug for Gate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (&self.turn, &self.item) {
            (ItemTurn::Failed(_), _) => "failed",
            (ItemTurn::Pending(_), _) => "an item waits",
            (ItemTurn::Granted, Some(_)) => "an item may pass",
            (ItemTurn::Granted, None) => "empty",
        };
        f.debug_struct("Gate").field("charge", &self.charge).field("state", &state).finish()
    }
}
