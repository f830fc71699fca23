//! A reservation that is held: given up when it is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::lines::{Entrance, Whose};
use super::place::Place;
use super::waiting::Waiting;
use crate::algebra::Units;
use crate::backend::{Applied, Refund, Refunded};
use crate::clock::Timestamp;
use crate::limiter::RateLimiter;
use crate::limiter::unstoppable::Unstoppable;

/// A place that is held for work which does not wait in line for it.
#[derive(Debug)]
pub(crate) struct Booking {
    limiter: RateLimiter,
    whose: Whose,
    place: Place,
    /// Whether the place is still to be given up.
    held: bool,
}

impl Booking {
    /// What was reserved; `None` if the answer leaves it out.
    pub(crate) fn new(
        limiter: RateLimiter,
        whose: Whose,
        units: Units,
        applied: &Applied,
    ) -> Option<Self> {
        let reading = applied.readings().first()?;
        let wait = reading.wait();
        // Counted from when the answer is here, which is after the decision: never early.
        let due = later(Instant::now(), wait);
        let at = applied.now() + wait;
        let place = limiter.lines().place(whose.bucket(), units, reading.state(), at, due);
        Some(Self { limiter, whose, place, held: true })
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.place.order.at()
    }

    pub(crate) const fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    pub(crate) const fn whose(&self) -> &Whose {
        &self.whose
    }

    /// Stays away from the place without giving it up: the work will run at its time.
    pub(crate) fn keep(mut self) {
        self.held = false;
    }

    /// Waits in line, and for at most `jitter` longer. Whoever is `patient` can be sent away.
    pub(crate) fn wait(mut self, jitter: Duration, patient: bool) -> Waiting {
        self.held = false;
        let (limiter, place) = (self.limiter.clone(), self.place);
        let (entrance, ticket, free) = limiter.lines().enter(self.whose.clone(), place, patient);
        give_up(&limiter, &entrance.whose, Some(&entrance), free);
        // Whoever enters while the line is being closed may have been overlooked there.
        let late = patient && limiter.lines().end().is_some_and(|end| place.due > end);
        Waiting::new(limiter, entrance, ticket, place, jitter, patient, late)
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let place = self.place;
        let entrance = self.limiter.lines().find(&self.whose);
        let free = match &entrance {
            Some(entrance) if place.due > Instant::now() => {
                entrance.with(|line, wakers| line.offer(place, wakers))
            }
            _ => Some(place),
        };
        give_up(&self.limiter, &self.whose, entrance.as_ref(), free);
    }
}

/// Undoes a place that nobody needs, if nothing has been taken from its bucket since; otherwise
/// those who come later may find it in the line.
pub(super) fn give_up(
    limiter: &RateLimiter,
    whose: &Whose,
    entrance: Option<&Arc<Entrance>>,
    free: Option<Place>,
) {
    let Some(place) = free else { return };
    let refund = Refund::new(whose.id(), whose.bucket(), place.units).if_untouched(place.left);
    let answer = limiter.backend().refund(&[refund]);
    let (limiter, entrance) = (limiter.clone(), entrance.cloned());
    let keep = move |refunded: Result<Refunded, _>| {
        // Whether a store has done what it gives no answer to is unknown: the place is spent then.
        if let (Ok(refunded), Some(entrance)) = (refunded, entrance)
            && !refunded.given()
            && place.due > Instant::now()
        {
            let other = entrance.with(|line, wakers| line.take_back(place, wakers));
            give_up(&limiter, &entrance.whose, Some(&entrance), other);
        }
    };
    // Nobody waits for this, so a store that answers later is heard by a task of its own.
    Unstoppable::new(answer).finish_with(keep);
}

/// Some years are as good as for ever.
pub(super) fn later(now: Instant, by: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);
    now.checked_add(by.min(FOR_EVER)).unwrap_or(now)
}
