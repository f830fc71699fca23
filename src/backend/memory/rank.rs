//! What an eviction loses with a bucket: the order in which buckets are evicted.

use std::cmp::Ordering;

use crate::algebra::{Bucket, State};
use crate::clock::Timestamp;
use crate::quota::Kind;

/// The order of the buckets of one quota. The bucket that has used the smallest share of its
/// capacity is the least, and is evicted first.
///
/// All buckets of a quota have one capacity, so the order of their shares is the order of what they
/// have used. Token buckets of a quota all gain at one speed: the order of what they have used is
/// the order of the instants at which they are full, and time does not change it. That is why a
/// rank can be kept in a heap. Fixed windows compare what they have used; of equal ones, the window
/// that ends first is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u64, Timestamp);

impl Rank {
    pub(super) fn new(bucket: &Bucket, state: State, now: Timestamp) -> Self {
        // Zero for token buckets: `used` falls as time passes, and ranks that were taken at two
        // instants could not be compared. The instant at which a bucket is full stays.
        let used = match bucket.kind() {
            Kind::TokenBucket => 0,
            Kind::FixedWindow => bucket.used(state, now),
        };
        Self(used, bucket.full_at(state))
    }
}

/// The share of its capacity that a bucket has used, to compare buckets of different quotas.
///
/// A bucket in debt has a share above 1. Of equal shares, the bucket that is full first has the
/// least.
///
/// For example, a bucket of 10 tokens that holds 4 has used 6/10. A bucket of 1,000 that holds 500
/// has used 5/10, so it is evicted before the other, although a client has used more tokens of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    used: u64,
    /// In units. A capacity of 0 counts as one unit, so that any debt is a large share of it.
    capacity: u64,
    full_at: Timestamp,
}

impl Share {
    pub(super) fn new(bucket: &Bucket, state: State, now: Timestamp) -> Self {
        let capacity = bucket.capacity().unsigned_abs().max(1);
        Self { used: bucket.used(state, now), capacity, full_at: bucket.full_at(state) }
    }

    /// Compares by cross-multiplication, so nothing is rounded: `a/b < c/d` if `a·d < c·b`.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        // Both factors are at most 2^53.
        let [one, two] = [(self, other), (other, self)]
            .map(|(one, two)| u128::from(one.used).saturating_mul(u128::from(two.capacity)));
        one.cmp(&two).then(self.full_at.cmp(&other.full_at))
    }
}
