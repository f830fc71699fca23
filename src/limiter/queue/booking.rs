//! A reservation that is held: given up when it is dropped.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use super::cost::{Cost, Left};
use super::entrance::Entrance;
use super::place::{Grant, Order, Place};
use super::waiting::Waiting;
use super::whose::{Part, Took, Whose};
use crate::algebra::Verdict;
use crate::backend::Applied;
use crate::clock::Timestamp;
use crate::limiter::ask::Ask;
use crate::limiter::share::said;
use crate::limiter::{Limit, RateLimiter};

/// A place that is held for work which does not stand in line for it.
#[derive(Debug)]
pub(crate) struct Booking {
    entrance: Arc<Entrance>,
    place: Place,
    /// Whether the place is still to be given up.
    held: bool,
}

impl Booking {
    /// What was reserved, by a complete answer, if it was.
    pub(crate) fn of<L: Borrow<Limit>>(
        limiter: &RateLimiter,
        asks: &[Ask<L>],
        applied: &Applied,
    ) -> Option<Self> {
        if applied.verdict() != Verdict::Reserved {
            return None;
        }
        let lines = limiter.lines();
        let at = applied.now() + applied.wait();

        let mut took = Vec::with_capacity(applied.readings().len());
        for (ask, readings) in said(asks, applied) {
            // Of two shards, the one that does not pay has nothing to do with it.
            let paid = readings.iter().any(|reading| reading.units() != 0);
            for (nth, (reading, shard)) in readings.iter().zip(ask.shards()).enumerate() {
                if reading.units() != 0 || (nth == 0 && !paid) {
                    let part = Part::new(ask.limit().clone(), ask.key.clone(), shard);
                    took.push(Took { part, units: reading.units(), left: reading.state() });
                }
            }
        }
        let (whose, took) = Whose::sorted(took);
        let left = took.iter().map(|took| (took.part.bucket(), took.left));
        let order = Order::new(left, at, lines.number());
        let taken = Cost::of(took.iter().map(|took| took.units));
        let left = Left::of(took.iter().map(|took| took.left));
        let place = Place { order, grant: Grant { used: taken.clone(), taken, left } };
        let entrance = lines.reserve(limiter, whose, applied.now());
        Some(Self { entrance, place, held: true })
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.place.order.at()
    }

    pub(crate) fn limiter(&self) -> &RateLimiter {
        self.entrance.limiter()
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
        (Arc::clone(&self.entrance), self.place.clone())
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        if self.held {
            let (place, now) = (self.place.clone(), self.entrance.now());
            self.entrance.with(|line, wakers| {
                line.outside = line.outside.saturating_sub(1);
                line.offer(place, now, wakers);
            });
            self.entrance.tidy();
        }
    }
}
