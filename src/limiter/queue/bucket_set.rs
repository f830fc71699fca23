//! Which buckets a queue waits for.

use std::sync::Arc;

use crate::algebra::{Bucket, State, Units};
use crate::backend::{BucketId, Key};
use crate::limiter::Limit;

/// The buckets of a reservation, sorted by name: all that reserve from the same ones stand in one
/// line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketSet(Arc<[QueueBucket]>);

/// One bucket. Numbers are part of it: a slot is worth nothing under other ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueBucket {
    limit: Arc<Limit>,
    key: Key,
    shard: u32,
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

    /// Whether it is the same limit's for the same key, be it another shard.
    pub(crate) fn is_of_same_limit(&self, other: &Self) -> bool {
        self.limit.name() == other.limit.name() && self.key == other.key
    }
}

/// What a reservation took of a bucket, and what it left there.
#[derive(Debug)]
pub(super) struct TakenUnits {
    pub(super) part: QueueBucket,
    pub(super) units: Units,
    pub(super) after: State,
}

impl BucketSet {
    /// The buckets that were asked, in their order, with what was taken. A bucket that was named
    /// twice is there once.
    pub(super) fn sorted(mut took: Vec<TakenUnits>) -> (Self, Vec<TakenUnits>) {
        if took.len() > 1 {
            took.sort_by_cached_key(|took| {
                let QueueBucket { limit, key, shard } = &took.part;
                (limit.name().to_owned(), key.as_bytes().to_owned(), *shard)
            });
        }
        // Each reading of a bucket shows what it holds in the end.
        took.dedup_by(|again, first| {
            let is_same = again.part == first.part;
            if is_same {
                first.units = first.units.saturating_add(again.units);
            }
            is_same
        });
        (Self(took.iter().map(|took| took.part.clone()).collect()), took)
    }

    pub(crate) fn parts(&self) -> &[QueueBucket] {
        &self.0
    }
}
