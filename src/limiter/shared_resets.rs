//! The resets that were made through a limiter, on a store that does not count them.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::backend::{Adjustment, Answer, BucketId, ResetLog, ResetMark};

/// Knows what a reset through this limiter has forgiven.
///
/// # Design
///
/// What a store answers later may be carried out at any time between the request and the answer. So a
/// charge is marked when it is sent, and a reset is counted twice: when it is sent, as refunds that
/// follow may be carried out after it, and when its answer comes, as charges that were sent before
/// that may have been carried out before it. What is given back is too little at worst: nothing, for
/// what was charged while the reset was under way, or if the reset has failed.
///
/// One log knows the resets of all limits, in stripes by a hash of the bucket's name, under a random key of
/// the limiter: no client can aim at the stripe of another one.
#[derive(Debug, Default)]
pub(super) struct SharedResets {
    log: Mutex<ResetLog>,
    hasher: RandomState,
}

impl SharedResets {
    /// What is charged from now on is marked with this.
    pub(super) fn mark(&self) -> ResetMark {
        self.log().mark()
    }

    pub(super) fn has_forgiven(&self, id: BucketId<'_>, mark: ResetMark) -> bool {
        self.log().has_forgiven(self.hasher.hash_one(id), mark)
    }

    /// What is still to be given back of this.
    pub(super) fn owed<'a>(&self, adjustment: Adjustment<'a>) -> Adjustment<'a> {
        match adjustment.mark() {
            Some(mark) if self.has_forgiven(adjustment.id(), mark) => {
                adjustment.with_change(adjustment.change().returning_nothing()).unmarked()
            }
            _ => adjustment.unmarked(),
        }
    }

    /// Asks a store to reset these buckets.
    pub(super) fn record_around(
        self: &Arc<Self>,
        ids: &[BucketId<'_>],
        ask: impl FnOnce() -> Answer<()>,
    ) -> Answer<()> {
        let buckets = ids.iter().map(|id| self.hasher.hash_one(id)).collect();
        let reset = PendingReset { resets: Arc::clone(self), buckets };
        reset.record();
        match ask() {
            ready @ Answer::Ready(_) => ready,
            Answer::Pending(answer) => Answer::pending(async move {
                let answer = answer.await;
                drop(reset);
                answer
            }),
        }
    }

    fn log(&self) -> MutexGuard<'_, ResetLog> {
        // Nothing panics while it is locked.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counted once more when it is dropped: it was answered, or its call has gone.
struct PendingReset {
    resets: Arc<SharedResets>,
    buckets: SmallVec<[u64; 2]>,
}

impl PendingReset {
    fn record(&self) {
        let mut log = self.resets.log();
        self.buckets.iter().for_each(|&bucket| log.record(bucket));
    }
}

impl Drop for PendingReset {
    fn drop(&mut self) {
        self.record();
    }
}
