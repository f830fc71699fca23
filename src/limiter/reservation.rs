//! Reservations: leave to run the work at a known instant.

use std::borrow::Borrow;
use std::future::{pending, poll_fn};
use std::mem;
use std::task::{Poll, ready};
use std::time::Duration;

use super::Limit;
use super::decide::{Asking, Decided};
use super::demand::Demand;
use super::engine::RateLimiter;
use super::events::{QueueStay, QueueStep};
use super::grant::Grant;
use super::permit::{Grants, Permit, Settle, Settlement};
use super::queue::{HeldSlot, ReservedSlot};
use super::rate_limited::RateLimited;
use super::snapshot::Snapshot;
use super::waiting::wait_for_turn;
use crate::backend::{BackendError, Origin};
use crate::clock::Timestamp;

/// Leave to run the work at a known instant; made by [`reserve`](super::LimitCall::reserve).
///
/// Its tokens are taken, and its instant is known at once. If the bucket had the tokens, the
/// instant is now. Await [`ready`](Self::ready) before the work runs.
///
/// Dropping the reservation, or the future of `ready`, cancels it. What becomes of its tokens
/// depends on the store:
///
/// * **In memory**, the reservation stands in line from when it is made, awaited or not. When it is
///   cancelled, it leaves the line, and all waiters behind it move forward. Tokens that it was
///   granted already go to them.
/// * **In a store that other processes use as well**, the waiters behind it of this process that
///   cost the same move forward. The last of their slots is free: its tokens are returned if no
///   request has charged one of the buckets since. Otherwise it is on offer to newcomers of the
///   same cost, and at its instant to the first waiter that fits. A slot that no waiter can use
///   then is spent: the store has told later requests their instants as if its tokens were used. If
///   you need the tokens back in any case, [keep](Self::keep) the reservation and
///   [refund](Permit::refund) the permit. A token of a limit of requests [in
///   flight](crate::Quota::in_flight) is returned in any case, once its slot is no longer on offer.
///
/// # Examples
///
/// ```
/// use tollgate::{Limit, Quota, RateLimited, RateLimiter, SECOND};
///
/// // A capacity of zero: every request waits its turn.
/// const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// let reservation = limiter.limit(&SPACED).reserve_within(5 * SECOND).await?;
/// assert_eq!(reservation.wait(), SECOND / 10);
/// let permit = reservation.ready().await;
/// // the work runs here
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a reservation cancels it"]
pub struct Reservation(Box<ReservationInner>);

#[derive(Debug)]
struct ReservationInner {
    /// What is given up on drop, before the limiter may be dropped with the grants.
    slot: Option<Box<dyn ReservedSlot>>,
    grants: Grants,
    /// What is returned on drop, at once.
    refund: Option<Settlement>,
    /// Whether the work has to wait for the turn of the slot.
    waits: bool,
    jitter: Duration,
    /// If the handle has observers and the work has to wait. Dropped after the slot.
    stay: Option<QueueStay>,
}

impl RateLimiter {
    /// Makes a reservation of what was decided. `limit` is the first one.
    pub(super) fn make_reservation<L: Borrow<Limit>>(
        &self,
        limit: &Limit,
        demands: &[Demand<L>],
        asking: Asking,
        decided: Decided,
        jitter: Duration,
    ) -> Result<Reservation, RateLimited> {
        let (answer, ticket) = match decided {
            Decided::Admitted(answer) => (answer, None),
            Decided::Reserved(answer, ticket) => (answer, Some(ticket)),
            Decided::Uncounted => {
                return self.grant_uncharged(demands, limit).map(Reservation::at_once);
            }
            denied => return Err(denied.error(self, demands, limit, jitter)),
        };
        let incomplete = || self.unavailable(limit, BackendError::incomplete());
        let (wait, made) = (answer.wait(), answer.now());
        let grants = answer.grants(demands.iter().map(Demand::own));
        let grants = Grants::new(self.clone(), grants, made).ok_or_else(incomplete)?;
        let Some(ticket) = ticket else { return Ok(Reservation::at_once(grants)) };
        let slot = self.hold(ticket, &answer, grants.iter()).ok_or_else(incomplete)?;
        // The jitter is cut where the wait would get too long: a random number must not decide
        // whether there is a reservation.
        let jitter = jitter.min(asking.max_wait().saturating_sub(wait));
        let slowest = Grant::slowest(grants.iter()).unwrap_or(grants.first.shared_limit());
        let promised = wait.saturating_add(jitter);
        let stay = self.join(demands, asking, &answer, slowest, promised);
        let (refund, slot, waits) = (None, Some(slot), true);
        let inner = ReservationInner { grants, refund, slot, waits, jitter, stay };
        Ok(Reservation(Box::new(inner)))
    }
}

impl Reservation {
    /// A reservation of tokens that were there at once.
    ///
    /// In a store that other processes use as well, they come back only if no request has charged one
    /// of the buckets since, as those of a slot. A plain refund would break the bound of the quota.
    /// Take a bucket of 5 tokens: A takes 5, and B reserves 5 for the instant at which the bucket has
    /// gained 5. If A returned its 5 now, a newcomer could take 5 at that instant as well, and run
    /// together with B: 10 tokens at once. What counts requests in flight comes back in any case: no
    /// instant depends on it.
    fn at_once(grants: Grants) -> Self {
        let Grants { limiter, first, at, .. } = &grants;
        // No work waits for a store that only decides in an outage, so nothing runs at an instant
        // that counts on these tokens. One store has answered about all of them. A limiter that is
        // off has taken none.
        let is_shared = !limiter.has_lines() && first.origin() == Origin::Store;
        let refunds_all = limiter.state.is_off || !is_shared;
        let refund = match refunds_all {
            true => Some(Settlement::All(0)),
            false => grants.iter().any(Grant::is_in_flight).then_some(Settlement::Ended),
        };
        let mut others = grants.iter().filter(|grant| !grant.is_in_flight()).peekable();
        let has_slot = !refunds_all && others.peek().is_some();
        let slot = has_slot.then(|| HeldSlot::hold(&limiter.state.queues, others, *at));
        let (waits, jitter, stay) = (false, Duration::ZERO, None);
        Self(Box::new(ReservationInner { grants, refund, slot, waits, jitter, stay }))
    }

    /// The instant from which the work may run, jitter included.
    ///
    /// For a limit of requests [in flight](crate::Quota::in_flight) the instant is unknown: the turn comes
    /// when another request ends. This returns when the others count as [lost](crate::Quota::lost_after),
    /// some 285 years away unless set.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.0.slot.as_ref().map_or(self.0.grants.at, |slot| slot.at()) + self.0.jitter
    }

    /// The wait from the reservation to that instant; zero if the bucket had the tokens.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.at().since(self.0.grants.at)
    }

    /// How the limit stands after this; of several limits, the first.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let Grants { limiter, first, .. } = &self.0.grants;
        first.snapshot().with_speech(&limiter.state.speech)
    }

    /// How all limits stand after this, in the order in which they were named.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        let speech = &self.0.grants.limiter.state.speech;
        self.0.grants.iter().map(|grant| grant.snapshot().with_speech(speech))
    }

    /// Waits for the turn: until [`at`](Self::at) at the latest.
    ///
    /// The turn comes earlier if a waiter before it leaves or tokens are returned. A waiter that
    /// stops being polled delays no other.
    ///
    /// # Panics
    ///
    /// The future panics if it has to wait and is polled outside of a tokio runtime, or in one
    /// without a timer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the reservation.
    #[doc(alias("wait_until_ready", "until_ready"))]
    #[must_use = "dropping it cancels the reservation"]
    pub fn ready(self) -> impl Future<Output = Permit<'static>> + Send + Unpin {
        let Self(mut inner) = self;
        let mut waiting = Some(Box::pin(async move {
            match inner.slot.take() {
                Some(mut slot) if inner.waits => {
                    // Only a drainable waiter is drained, and this one is not.
                    if wait_for_turn(&mut *slot, inner.jitter, None, None).await.is_err() {
                        return pending().await;
                    }
                    slot.note_paid(&mut inner.grants.iter_mut());
                    inner.grants.at = slot.use_up();
                    inner.end_stay(QueueStep::Served);
                }
                slot => slot.into_iter().for_each(|slot| slot.keep(&mut inner.grants.iter_mut())),
            }
            inner.take_permit()
        }));
        poll_fn(move |cx| {
            // A future that has completed stays pending.
            let Some(future) = &mut waiting else { return Poll::Pending };
            let permit = ready!(future.as_mut().poll(cx));
            waiting = None;
            Poll::Ready(permit)
        })
    }

    /// Keeps the reservation without waiting, for work that is planned for its instant.
    ///
    /// The permit is valid from [`at`](Self::at) on. Dropping it gives nothing back.
    ///
    /// The reservation stands in line all the same. So its tokens may be granted before `at`, and
    /// the bound of the quota counts them from then.
    #[must_use = "the permit settles or refunds the work; dropping it gives nothing back"]
    pub fn keep(self) -> Permit<'static> {
        let (at, Self(mut inner)) = (self.at(), self);
        if let Some(slot) = inner.slot.take() {
            slot.keep(&mut inner.grants.iter_mut());
        }
        inner.end_stay(QueueStep::Kept);
        inner.grants.at = at;
        inner.take_permit()
    }
}

impl ReservationInner {
    fn end_stay(&mut self, step: QueueStep) {
        if let Some(stay) = self.stay.take() {
            stay.end(step);
        }
    }

    /// The permit of the grants, which are no longer returned on drop.
    fn take_permit(&mut self) -> Permit<'static> {
        self.refund = None;
        let Grants { limiter, first, rest, at } = &mut self.grants;
        let (limiter, first, rest) = (limiter.clone(), first.clone(), mem::take(rest));
        Permit::owned(Grants { limiter, first, rest, at: *at })
    }
}

impl Drop for ReservationInner {
    fn drop(&mut self) {
        if let Some(refund) = self.refund {
            let Grants { limiter, first, rest, .. } = &self.grants;
            // Not awaited: it completes by itself.
            drop(Settle::new(limiter, first, rest.iter(), refund));
        }
    }
}
