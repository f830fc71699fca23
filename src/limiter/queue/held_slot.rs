//! A reservation that is held: given up when it is dropped.

use std::sync::Arc;

use super::bucket_set::{BucketSet, QueueBucket, TakenUnits};
use super::registry::{QueueRegistry, SharedQueue};
use super::time_slot::{SlotGrant, SlotKey, TimeSlot};
use crate::clock::Timestamp;
use crate::limiter::grant::Grant;

/// A slot that is held for work which does not stand in the queue for it.
#[derive(Debug)]
pub(crate) struct HeldSlot {
    queue: Arc<SharedQueue>,
    place: TimeSlot,
    /// Whether the slot is still to be given up.
    held: bool,
}

impl HeldSlot {
    /// Holds the slot that these grants were reserved, whose work may run at `at`.
    pub(crate) fn new<'g>(
        registry: &Arc<QueueRegistry>,
        grants: impl Iterator<Item = &'g Grant>,
        at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let took = grants.flat_map(|grant| {
            grant.paid().map(|paid| {
                let part = QueueBucket::new(
                    Arc::clone(grant.shared_limit()),
                    grant.key().clone(),
                    paid.shard,
                );
                TakenUnits { part, units: paid.units, left: paid.after }
            })
        });
        let (whose, took) = BucketSet::sorted(took.collect());
        let left = took.iter().map(|took| (took.part.bucket(), took.left));
        let made = registry.event(now);
        let order = SlotKey::new(left, at, made.number);
        let taken = took.iter().map(|took| took.units).collect();
        let left = took.iter().map(|took| took.left).collect();
        let place = TimeSlot { order, grant: SlotGrant { taken, left, made } };
        Self { queue: registry.reserve(whose, now), place, held: true }
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.place.order.at()
    }

    /// Stays away from the slot without giving it up: the work will run at its time.
    pub(crate) fn keep(mut self) {
        self.held = false;
        self.queue.end_reservation();
        self.queue.undo_free_slots();
    }

    /// Hands the slot over: the caller is responsible for it from now on.
    pub(super) fn hand_over(mut self) -> (Arc<SharedQueue>, TimeSlot) {
        self.held = false;
        (Arc::clone(&self.queue), self.place.clone())
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        if self.held {
            let (place, now) = (self.place.clone(), self.queue.now());
            self.queue.with(|line, wakers| line.offer(place, now, wakers));
            self.queue.end_reservation();
            self.queue.undo_free_slots();
        }
    }
}
