//! The store of a limiter that is switched off: it admits everything and keeps nothing.

use crate::algebra::{Bucket, Verdict};
use crate::backend::kit::absent;
use crate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorQuery, DebtorReport, Reading,
};
use crate::clock::{Clock, SystemClock};
use crate::quota::{Quota, SECOND};

/// Answers that each bucket is full, and has paid nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Off {
    clock: SystemClock,
}

impl Off {
    /// The answer about the buckets of these charges.
    pub(super) fn answer(self, charges: &[Charge<'_>]) -> Applied {
        let buckets = charges.iter().flat_map(|one| one.ids().map(|id| (id, one.bucket())));
        self.answer_about(buckets)
    }

    fn answer_about<'a>(
        self,
        buckets: impl Iterator<Item = (BucketId<'a>, &'a Bucket)>,
    ) -> Applied {
        let now = self.clock.now();
        let full = buckets.map(|(id, bucket)| {
            Reading::in_micros(Verdict::Admitted, absent(id, free(bucket), now), 0, 0)
        });
        Applied::many(now, full.collect())
    }
}

impl Backend for Off {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        Answer::Ready(Ok(self.answer(charges)))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let buckets = adjustments.iter().map(|one| (one.id(), one.bucket()));
        Answer::Ready(Ok(self.answer_about(buckets)))
    }

    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        Answer::Ready(Ok(()))
    }

    fn debtors(&self, _: &DebtorQuery) -> Answer<DebtorReport> {
        let (at, debtors) = (self.clock.now(), Vec::new());
        Answer::Ready(Ok(DebtorReport::Page { at, debtors, next: None }))
    }
}

/// The numbers of a bucket that is full; in place of those that grant nothing, some that hold nothing.
fn free(bucket: &Bucket) -> &Bucket {
    static EMPTY: Bucket = match Bucket::new(&Quota::token_bucket(1, SECOND).capacity(0)) {
        Ok(bucket) => bucket,
        Err(error) => error.panic(),
    };
    if bucket.capacity() < 0 { &EMPTY } else { bucket }
}
