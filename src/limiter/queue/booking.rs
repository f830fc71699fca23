//! A reservation that is held: given up when it is dropped.

use std::sync::Arc;

use super::cost::{Cost, Left};
use super::place::{Order, Place, PlaceGrant};
use super::registry::{QueueRegistry, SharedQueue};
use super::whose::{Part, Took, Whose};
use crate::clock::Timestamp;
use crate::limiter::grant::Grant;

/// A place that is held for work which does not stand in line for it.
#[derive(Debug)]
pub(crate) struct Booking {
    queue: Arc<SharedQueue>,
    place: Place,
    /// Whether the place is still to be given up.
    held: bool,
}

impl Booking {
    /// Holds the place that these grants were reserved, whose work may run at `at`.
    pub(crate) fn new<'g>(
        registry: &Arc<QueueRegistry>,
        grants: impl Iterator<Item = &'g Grant>,
        at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let took = grants.flat_map(|grant| {
            grant.paid().map(|paid| {
                let part =
                    Part::new(Arc::clone(grant.shared_limit()), grant.key().clone(), paid.shard);
                Took { part, units: paid.units, left: paid.after }
            })
        });
        let (whose, took) = Whose::sorted(took.collect());
        let left = took.iter().map(|took| (took.part.bucket(), took.left));
        let order = Order::new(left, at, registry.number());
        let taken = Cost::of(took.iter().map(|took| took.units));
        let left = Left::of(took.iter().map(|took| took.left));
        let place = Place { order, grant: PlaceGrant { used: taken.clone(), taken, left } };
        Self { queue: registry.reserve(whose, now), place, held: true }
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.place.order.at()
    }

    /// Stays away from the place without giving it up: the work will run at its time.
    pub(crate) fn keep(mut self) {
        self.held = false;
        self.queue.with(|line, _| line.outside = line.outside.saturating_sub(1));
        self.queue.tidy();
    }

    /// Steps out of the way of the place: whoever has the queue now is responsible for it.
    pub(super) fn hand_over(mut self) -> (Arc<SharedQueue>, Place) {
        self.held = false;
        (Arc::clone(&self.queue), self.place.clone())
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        if self.held {
            let (place, now) = (self.place.clone(), self.queue.now());
            self.queue.with(|line, wakers| {
                line.outside = line.outside.saturating_sub(1);
                line.offer(place, now, wakers);
            });
            self.queue.tidy();
        }
    }
}
