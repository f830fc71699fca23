//! A reservation that has to wait, the same for every store, and the buckets that it waits for.

use std::fmt;
use std::sync::Arc;
use std::task::Context;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::algebra::Bucket;
use crate::backend::{BucketId, Key, Reading};
use crate::clock::Timestamp;
use crate::limiter::Limit;
use crate::limiter::events::QueueStep;
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
    /// If the limiter was drained and its turn would come too late. It has given up its slot.
    fn poll(&mut self, cx: &Context<'_>) -> Result<Option<Instant>, QueueStep>;

    /// Grants the waiter, since the instant until which it was to wait has come.
    fn grant(&self) {}

    /// Notes in the grants how their buckets have paid for the turn: after a reset perhaps, which came
    /// while the waiter stood in their lines.
    fn note_paid(&self, _grants: &mut dyn Iterator<Item = &mut Grant>) {}

    /// Uses the turn, since the work runs now. Nothing is given back after that. Returns the instant from
    /// which the work may run.
    fn use_up(self: Box<Self>) -> Timestamp;
}

/// One bucket of a queue. The numbers of its limit are part of it, since a slot that was reserved
/// under other numbers is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueBucket {
    pub(crate) limit: Arc<Limit>,
    pub(crate) key: Key,
    pub(super) shard: u32,
}

impl QueueBucket {
    pub(crate) fn id(&self) -> BucketId<'_> {
        self.limit.bucket_of(&self.key).shard(self.shard)
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        self.limit.bucket()
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.limit.quota().is_in_flight()
    }
}

/// The buckets that these grants were taken from, and what was taken from each.
pub(crate) fn paid_buckets<'g>(
    grants: impl Iterator<Item = &'g Grant>,
) -> impl Iterator<Item = (QueueBucket, Reading)> {
    grants.flat_map(|grant| {
        grant.paid().map(|(shard, reading)| {
            let (limit, key) = (Arc::clone(grant.shared_limit()), grant.key.clone());
            (QueueBucket { limit, key, shard }, *reading)
        })
    })
}

/// Sorts the buckets of a reservation by name. All reservations on the same ones share a queue. Returns
/// them with what was taken from each. A bucket that the call named twice is there once, with the sum.
pub(super) fn sort_taken(
    mut taken: Vec<(QueueBucket, Reading)>,
) -> (Arc<[QueueBucket]>, SmallVec<[Reading; 1]>) {
    // Two calls that name the same limits in another order must share one queue: in two queues,
    // the waiters of one would not get the slots that the other gives up. A single bucket needs
    // no order, and then no name is copied.
    if taken.len() > 1 {
        taken.sort_by_cached_key(|(QueueBucket { limit, key, shard }, _)| {
            (limit.name().to_owned(), key.as_bytes().to_owned(), *shard)
        });
    }
    // The sort has put equal buckets side by side, which is all that `dedup_by` compares. Both
    // readings of such a bucket show what it holds after the whole call.
    taken.dedup_by(|(part, again), (first_part, first)| {
        let is_same = part == first_part;
        if is_same {
            *first = first.with_more(again);
        }
        is_same
    });
    let (parts, taken): (Vec<_>, _) = taken.into_iter().unzip();
    (parts.into(), taken)
}
