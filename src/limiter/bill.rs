//! What a layer needs to settle a request by, and no more.

use smallvec::SmallVec;

use super::permit::Settling;
use super::share::Shares;
use super::unstoppable::Unstoppable;
use super::{Limit, Permit, RateLimiter};
use crate::backend::{BucketId, Key};

/// Tokens that are to be settled, once and for all.
#[derive(Debug)]
pub(crate) struct Bill {
    limiter: RateLimiter,
    shares: Shares,
}

impl Bill {
    pub(crate) const fn new(limiter: RateLimiter, shares: Shares) -> Self {
        Self { limiter, shares }
    }

    /// Settles without waiting for it.
    pub(crate) fn settle(self, actual: u64) {
        drop(self.settling(Some(actual)));
    }

    /// Gives everything back without waiting for it, but for what has come in since in its place.
    pub(crate) fn refund(self) {
        let parts = self.shares.iter().map(|share| share.late_part().priced());
        drop(Settling::new(&self.limiter, self.limit(), parts, None));
    }

    /// `None` gives everything back.
    pub(crate) fn settling(&self, actual: Option<u64>) -> Settling {
        // All of it is to be settled, whoever has said what it costs.
        let parts = self.shares.iter().map(|share| share.part().priced());
        Settling::new(&self.limiter, self.limit(), parts, actual)
    }

    /// Leaves it to whoever has the permit.
    pub(crate) fn into_permit(self) -> Permit<'static> {
        let at = self.shares.standing().at();
        Permit::owned(self.limiter, self.shares, at)
    }

    /// The first limit.
    pub(crate) fn limit(&self) -> &Limit {
        self.shares.standing().limit()
    }

    /// Forgets the buckets, all shards of them, and what was taken with them.
    pub(crate) fn reset(self) -> Unstoppable<()> {
        let whose = self.shares.iter().map(|share| (share.limit(), share.key()));
        let ids: SmallVec<[BucketId<'_>; 4]> = whose.flat_map(buckets).collect();
        Unstoppable::new(self.limiter.backend().reset(&ids))
    }
}

/// All shards of a limit for a key.
fn buckets<'i>((limit, key): (&'i Limit, &'i Key)) -> impl Iterator<Item = BucketId<'i>> {
    (0..limit.quota().shard_count()).map(|shard| BucketId::new(limit.name(), key).shard(shard))
}
