//! The slot of a reservation that was not polled yet.

use std::sync::Arc;

use super::bucket_set::{BucketSet, QueueBucket, TakenUnits};
use super::registry::{QueueRegistry, SharedQueue};
use super::time_slot::{SlotGrant, SlotKey, TimeSlot};
use crate::clock::Timestamp;
use crate::limiter::grant::Grant;

/// A slot that a reservation holds before it enters the queue.
///
/// It keeps its instant, since the caller may have planned the work for it. When it is dropped, the
/// slot is offered to the waiters behind it.
#[derive(Debug)]
pub(crate) struct HeldSlot {
    queue: Arc<SharedQueue>,
    slot: TimeSlot,
    /// Whether the slot is given up on drop.
    held: bool,
}

impl HeldSlot {
    /// Holds the slot of these grants. The store reserved it at `now`, for work that runs at `at`.
    pub(crate) fn new<'g>(
        registry: &Arc<QueueRegistry>,
        grants: impl Iterator<Item = &'g Grant>,
        at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let taken = grants.flat_map(|grant| {
            grant.paid().map(|paid| {
                let part = QueueBucket::new(
                    Arc::clone(grant.shared_limit()),
                    grant.key().clone(),
                    paid.shard,
                );
                TakenUnits { part, units: paid.units, unpaid: paid.unpaid(), after: paid.after }
            })
        });
        let (buckets, taken) = BucketSet::from_taken(taken.collect());
        let after = taken.iter().map(|taken| (taken.part.bucket(), taken.after));
        let made = registry.event(now);
        let key = SlotKey::new(after, at, made.number);
        let units = taken.iter().map(|taken| taken.units).collect();
        let after = taken.iter().map(|taken| taken.after).collect();
        let unpaid = taken.iter().map(|taken| taken.unpaid).collect();
        let slot = TimeSlot { key, grant: SlotGrant { taken: units, unpaid, after, made } };
        Self { queue: registry.queue_for(buckets, now), slot, held: true }
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.slot.key.at()
    }

    /// Spends the slot without waiting: the work is planned for its instant.
    pub(crate) fn keep(mut self) {
        self.held = false;
        // If this was all that kept the queue, the call below forgets it.
        self.queue.end_reservation();
        self.queue.undo_free_slots();
    }

    /// The queue and the slot. The caller has to give the slot up from now on.
    pub(super) fn into_parts(mut self) -> (Arc<SharedQueue>, TimeSlot) {
        self.held = false;
        (Arc::clone(&self.queue), self.slot.clone())
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        if self.held {
            let (slot, now) = (self.slot.clone(), self.queue.now());
            // While it still counts as held. If the queue were forgotten before, a newcomer would
            // get another queue, without this slot.
            self.queue.with(|waiters, wakers| waiters.offer(slot, now, wakers));
            self.queue.end_reservation();
            self.queue.undo_free_slots();
        }
    }
}
