//! The wait of a reservation, the same for every store: its timer, its jitter, and its end by a drain
//! or since it has waited for as long as it may.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::queue::{QueueRegistry, ReservedSlot, Unserved, later};

/// Waits for the turn of `slot`, and for `jitter` longer. `drained_by` is the registry of the limiter
/// that can drain it, if one can.
///
/// It gives up at the instant `expires`, unless the turn has come by then. That has to be before the
/// instant that the caller was told, and is `None` if the turn comes before it anyway.
///
/// Dropping the future before it completes cancels the reservation.
pub(crate) async fn wait_for_turn(
    slot: &mut dyn ReservedSlot,
    jitter: Duration,
    drained_by: Option<Arc<QueueRegistry>>,
    expires: Option<Instant>,
) -> Result<(), Unserved> {
    let drain_end = || drained_by.as_ref()?.drain_instant();
    let turn = slot.enter(drained_by.is_some());
    // A waiter that enters after the drain is in none of the queues that the drain has visited, so it
    // reads the deadline itself.
    if drain_end().is_some_and(|end| end < turn) {
        return Err(Unserved::Drained);
    }
    let (mut timer, mut has_checked) = (None, false);
    poll_fn(|cx| {
        loop {
            let Some(until) = slot.poll(cx)? else { return Poll::Ready(Ok(())) };
            // Only after the poll, which grants what is due: if the turn comes at this very instant,
            // the work runs.
            if expires.is_some_and(|end| end <= Instant::now()) {
                return Poll::Ready(Err(Unserved::Expired));
            }
            let until = expires.map_or(until, |end| end.min(until));
            // The timer has fired, but the store's clock has not reached the instant. Polling again at
            // once would be a busy loop.
            let again = Instant::now().checked_add(RECHECK_INTERVAL).filter(|_| has_checked);
            let until = again.map_or(until, |again| again.max(until));
            has_checked = false;
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            ready!(timer.as_mut().poll(cx));
            // At the instant that it was told, and not when it gives up before that.
            if expires.is_none() {
                slot.grant();
            }
            has_checked = true;
        }
    })
    .await?;
    if jitter.is_zero() {
        return Ok(());
    }
    let until = later(Instant::now(), jitter);
    let until = expires.map_or(until, |end| end.min(until));
    loop {
        // Made before the deadline is read: it completes with any drain from here on. In the other
        // order, a drain in between would be missed.
        let drained = drained_by.as_ref().map(|registry| registry.drained());
        let drained =
            async { if let Some(drained) = drained { drained.await } else { pending().await } };
        let end = drain_end().map_or(until, |end| end.min(until));
        // The limiter may be drained again with an earlier deadline.
        if timeout_at(end, drained).await.is_err() {
            return Ok(());
        }
    }
}

/// How long a waiter waits before it polls again, if its instant has come and its turn has not.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);
