//! The buckets that a queue is on.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algebra::{Bucket, State};
use crate::backend::{BucketId, Key};
use crate::clock::Timestamp;
use crate::limiter::Limit;
use crate::limiter::grant::{Grant, PaidBucket};
use crate::limiter::snapshot::Level;

/// One bucket of a queue. The numbers of its limit are part of it, since a slot that was reserved
/// under other numbers is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueBucket {
    limit: Arc<Limit>,
    key: Key,
    shard: u32,
}

/// The buckets that these grants were taken from, and what was taken from each.
pub(crate) fn paid_buckets<'g>(
    grants: impl Iterator<Item = &'g Grant>,
) -> impl Iterator<Item = (QueueBucket, PaidBucket)> {
    grants.flat_map(|grant| {
        grant.paid().map(|paid| {
            let limit = Arc::clone(grant.shared_limit());
            (QueueBucket::new(limit, grant.key.clone(), paid.shard), *paid)
        })
    })
}

/// A turn that was used: the work of the waiter runs.
#[derive(Debug)]
pub(crate) struct UsedTurn {
    /// The instant from which the work may run.
    pub(crate) at: Timestamp,
    /// The buckets, and how each of them stands at that instant for the next request.
    buckets: Vec<(QueueBucket, State)>,
}

impl UsedTurn {
    /// Of buckets with what each of them held after the reservation.
    pub(crate) fn new(at: Timestamp, after: impl Iterator<Item = (QueueBucket, State)>) -> Self {
        let states = after.map(|(bucket, after)| {
            let state = bucket.state_at_turn(after, at);
            (bucket, state)
        });
        Self { at, buckets: states.collect() }
    }

    /// How the limit of a grant stands then for the next request; of several shards, the first.
    pub(crate) fn level(&self, grant: &Grant) -> Level {
        let part = self.buckets.iter().find(|(part, _)| part.is_of(grant));
        // The cost does not matter: waiters hold all tokens, so none remain.
        part.map_or_else(|| grant.level(), |(_, state)| Level::admitted(*state, 1, self.at))
    }
}

impl QueueBucket {
    pub(crate) const fn new(limit: Arc<Limit>, key: Key, shard: u32) -> Self {
        Self { limit, key, shard }
    }
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }
    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn id(&self) -> BucketId<'_> {
        self.limit.bucket_of(&self.key).shard(self.shard)
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        self.limit.bucket()
    }

    /// How the bucket stands for the next request when the turn of a reservation comes, `left` being
    /// what it held after that reservation.
    ///
    /// A bucket in debt has nothing left until then: whatever it gains is promised to later
    /// reservations. One that was not short has what it had, as far as this process knows.
    fn state_at_turn(&self, left: State, turn: Timestamp) -> State {
        let State { value, ts } = self.bucket().refresh(left, turn);
        State { value: if left.value < 0 { value.min(0) } else { left.value }, ts }
    }

    /// Whether it is a bucket of the limit and the key of this grant.
    fn is_of(&self, grant: &Grant) -> bool {
        self.limit.name() == grant.limit().name() && self.key == grant.key
    }
}

/// Sorts the buckets of a reservation by name. All reservations on the same ones share a queue. Returns
/// them with what was taken from each. A bucket that the call named twice is there once, with the sum.
pub(super) fn sort_taken(
    mut taken: Vec<(QueueBucket, PaidBucket)>,
) -> (Arc<[QueueBucket]>, SmallVec<[PaidBucket; 1]>) {
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
            first.reading = first.reading.with_more(&again.reading);
        }
        is_same
    });
    let (parts, taken): (Vec<_>, _) = taken.into_iter().unzip();
    (parts.into(), taken)
}
