//! A reservation that is held: given up when it is dropped.

use std::sync::Arc;
use std::time::Duration;

use super::entrance::Entrance;
use super::lines::Whose;
use super::place::Place;
use super::waiting::Waiting;
use crate::algebra::Units;
use crate::backend::Applied;
use crate::clock::Timestamp;
use crate::limiter::RateLimiter;

/// A place that is held for work which does not stand in line for it.
#[derive(Debug)]
pub(crate) struct Booking {
    entrance: Arc<Entrance>,
    place: Place,
    /// Whether the place is still to be given up.
    held: bool,
}

impl Booking {
    /// What was reserved; `None` if the answer leaves it out.
    pub(crate) fn new(
        limiter: &RateLimiter,
        whose: Whose,
        units: Units,
        applied: &Applied,
    ) -> Option<Self> {
        let reading = applied.readings().first()?;
        let lines = limiter.lines();
        // Counted from when the answer is here, which is after the decision: never early.
        let heard = lines.epoch().now();
        let place = lines.place(whose.bucket(), units, reading, applied.now(), heard);
        Some(Self { entrance: lines.reserve(limiter, whose), place, held: true })
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.place.order.at()
    }

    pub(crate) fn limiter(&self) -> &RateLimiter {
        self.entrance.limiter()
    }

    pub(crate) fn whose(&self) -> &Whose {
        self.entrance.whose()
    }

    /// Stays away from the place without giving it up: the work will run at its time.
    pub(crate) fn keep(mut self) {
        self.held = false;
        self.entrance.with(|line, _| line.outside = line.outside.saturating_sub(1));
        self.entrance.tidy();
    }

    /// Waits in line, and for at most `jitter` longer. Whoever is `patient` can be sent away.
    pub(crate) fn wait(self, jitter: Duration, patient: bool) -> Waiting {
        Waiting::new(self, jitter, patient)
    }

    /// Steps out of the way of the place: whoever has the entrance now is responsible for it.
    pub(super) fn hand_over(mut self) -> (Arc<Entrance>, Place) {
        self.held = false;
        (Arc::clone(&self.entrance), self.place)
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        if self.held {
            let (place, now) = (self.place, self.entrance.now());
            self.entrance.with(|line, wakers| {
                line.outside = line.outside.saturating_sub(1);
                line.offer(place, now, wakers);
            });
            self.entrance.tidy();
        }
    }
}
