//! Resets buckets, and forgives what was taken from them.

use super::engine::RateLimiter;
use crate::backend::{Answer, BucketId, ResetMark};

impl RateLimiter {
    /// Makes these buckets as if they had never been used.
    pub(super) fn forget(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        if self.has_lines() {
            // The memory store records resets itself.
            return self.backend().reset(ids);
        }
        self.queues().forget_returns(ids);
        self.resets().record_around(ids, || self.backend().reset(ids))
    }

    /// Whether a reset through this limiter has forgiven what was taken at this mark.
    pub(super) fn has_forgiven(&self, id: BucketId<'_>, mark: ResetMark) -> bool {
        self.resets().has_forgiven(id, mark)
    }
}
