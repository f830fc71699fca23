//! A reservation that has to wait, the same for every store.

use std::fmt;
use std::task::Context;

use tokio::time::Instant;

use super::bucket_set::UsedTurn;
use super::wait_queue::Unserved;
use crate::clock::Timestamp;
use crate::limiter::grant::Grant;

/// A reservation that has to wait, then its turn. Dropping it cancels the reservation, unless it was
/// used up.
pub(crate) trait ReservedSlot: fmt::Debug + Send + Sync {
    /// The instant that the caller was told.
    fn at(&self) -> Timestamp;

    /// Spends the slot without waiting for it: the work is planned for its instant.
    fn keep(self: Box<Self>, grants: &mut dyn Iterator<Item = &mut Grant>);

    /// Begins to wait. Returns when its turn comes if no other waiter leaves.
    ///
    /// [`RateLimiter::drain`](crate::RateLimiter::drain) removes only drainable waiters.
    fn enter(&mut self, is_drainable: bool) -> Instant;

    /// Until when it has to wait unless it is woken before, or `None` if its turn has come.
    ///
    /// # Errors
    ///
    /// If the limiter was drained and its turn would come too late.
    fn poll(&mut self, cx: &Context<'_>) -> Result<Option<Instant>, Unserved>;

    /// Grants the waiter, since the instant until which it was to wait has come.
    fn grant(&self) {}

    /// Notes in the grants which buckets were reset while the waiter stood in their lines.
    fn outlive_resets(&self, _grants: &mut dyn Iterator<Item = &mut Grant>) {}

    /// Uses the turn, since the work runs now. Nothing is given back after that.
    fn use_up(self: Box<Self>) -> UsedTurn;
}
