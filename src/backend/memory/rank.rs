//! How much is lost with a bucket: what the order of eviction compares.

use std::cmp::Ordering;

use crate::algebra::{Bucket, State};
use crate::clock::Timestamp;
use crate::quota::Kind;

/// The order of the buckets of one quota: the one that has used the smallest share of its capacity
/// is the least.
///
/// Their capacities are the same, so their shares are in the order of what they have used. Token
/// buckets of one quota all gain at the same speed, so that is the order of the instants at which
/// they are full, which time does not change. Of fixed windows, what is used counts, and of equal
/// ones the window that ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u64, Timestamp);

impl Rank {
    pub(super) fn new(bucket: &Bucket, state: State, now: Timestamp) -> Self {
        let used = match bucket.kind() {
            Kind::TokenBucket => 0,
            Kind::FixedWindow => bucket.used(state, now),
        };
        Self(used, bucket.full_at(state))
    }
}

/// What a bucket has used of its capacity, to compare it with buckets of other quotas.
///
/// Debt is above 1. Of equal shares, the bucket that is full first has the least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    used: u64,
    /// In units. A capacity of 0 counts as a single unit, so that all debt is a large share of it.
    capacity: u64,
    full_at: Timestamp,
}

impl Share {
    pub(super) fn new(bucket: &Bucket, state: State, now: Timestamp) -> Self {
        let capacity = bucket.capacity().unsigned_abs().max(1);
        Self { used: bucket.used(state, now), capacity, full_at: bucket.full_at(state) }
    }

    /// Which of the two is evicted before the other.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        // Both factors are at most 2^53.
        let [one, two] = [(self, other), (other, self)]
            .map(|(one, two)| u128::from(one.used).saturating_mul(u128::from(two.capacity)));
        one.cmp(&two).then(self.full_at.cmp(&other.full_at))
    }
}
