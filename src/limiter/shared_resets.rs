//! The resets that were made through a limiter, for a store that does not record them.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use super::detached::noted;
use super::lock::lock;
use crate::backend::{Adjustment, Answer, BucketId, ResetLog, ResetMark};

/// Knows which tokens a reset through this limiter has forgiven, so that they are not refunded as
/// well.
///
/// # Design
///
/// Between a call and its answer, a store may carry the call out at any time. So a charge is marked
/// when it is *sent*, and a reset is recorded twice: when it is sent, since later refunds may be
/// carried out after it, and when its answer comes, since charges that were sent meanwhile may have
/// been carried out before it.
///
/// ```text
/// charge A sent   reset sent     charge B sent   reset answered   charge C sent
///    mark 0        record 1           mark 1         record 2          mark 2
/// ```
///
/// A refund of A or B returns nothing, one of C returns all. B may have been carried out after the
/// reset: its tokens are then lost. The error is always on that side, also when a reset fails.
///
/// One log has the resets of all limits, in stripes by a hash of the bucket's name. The hash has a
/// random key, so that no client can fill the stripe of another one.
#[derive(Debug, Default)]
pub(crate) struct SharedResets {
    log: Mutex<ResetLog>,
    /// Whether there was any reset. Until then, a charge needs no lock for its mark.
    is_used: AtomicBool,
    hasher: RandomState,
}

impl SharedResets {
    /// The mark for all that is charged from now on.
    pub(super) fn mark(&self) -> ResetMark {
        if !self.is_used.load(Ordering::Acquire) {
            return ResetLog::default().mark();
        }
        lock(&self.log).mark()
    }

    pub(crate) fn has_forgiven(&self, id: BucketId<'_>, mark: ResetMark) -> bool {
        lock(&self.log).has_forgiven(self.hasher.hash_one(id), mark)
    }

    /// The adjustment without what a reset has forgiven.
    pub(super) fn owed<'a>(&self, adjustment: Adjustment<'a>) -> Adjustment<'a> {
        match adjustment.mark() {
            Some(mark) if self.has_forgiven(adjustment.id(), mark) => {
                adjustment.with_change(adjustment.change().returning_nothing()).without_mark()
            }
            _ => adjustment.without_mark(),
        }
    }

    /// Asks a store to reset these buckets, and records the reset before and after, also if its answer
    /// is lost.
    pub(super) fn record_around(
        self: &Arc<Self>,
        ids: &[BucketId<'_>],
        ask: impl FnOnce() -> Answer<()>,
    ) -> Answer<()> {
        let buckets = ids.iter().map(|id| self.hasher.hash_one(id));
        let (resets, buckets) = (Arc::clone(self), buckets.collect::<SmallVec<[u64; 2]>>());
        resets.record(&buckets);
        noted(ask, move |_, _| resets.record(&buckets))
    }

    fn record(&self, buckets: &[u64]) {
        let mut log = lock(&self.log);
        self.is_used.store(true, Ordering::Release);
        buckets.iter().for_each(|&bucket| log.record(bucket));
    }
}
