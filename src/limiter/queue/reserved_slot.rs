//! A reservation that has to wait, the same for every store, and the buckets that it waits for.

use std::fmt;
use std::sync::Arc;
use std::task::Context;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::algebra::{Bucket, State};
use crate::backend::{BucketId, Key};
use crate::clock::Timestamp;
use crate::limiter::Limit;
use crate::limiter::grant::{Grant, PaidBucket};
use crate::limiter::snapshot::Level;

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
    /// If the limiter was drained and its turn would come too late.
    fn poll(&mut self, cx: &Context<'_>) -> Result<Option<Instant>, Unserved>;

    /// Grants the waiter, since the instant until which it was to wait has come.
    fn grant(&self) {}

    /// Notes in the grants which buckets were reset while the waiter stood in their lines.
    fn outlive_resets(&self, _grants: &mut dyn Iterator<Item = &mut Grant>) {}

    /// Uses the turn, since the work runs now. Nothing is given back after that.
    fn use_up(self: Box<Self>) -> UsedTurn;
}

/// Why a waiter gets no turn. It has given up its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// The limiter was drained, and its turn would have come too late.
    Drained,
    /// It has waited for as long as it may.
    Expired,
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

/// The buckets that these grants were taken from, and what was taken from each.
pub(crate) fn paid_buckets<'g>(
    grants: impl Iterator<Item = &'g Grant>,
) -> impl Iterator<Item = (QueueBucket, PaidBucket)> {
    grants.flat_map(|grant| {
        grant.paid().map(|paid| {
            let (limit, key) = (Arc::clone(grant.shared_limit()), grant.key.clone());
            (QueueBucket { limit, key, shard: paid.shard }, *paid)
        })
    })
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
