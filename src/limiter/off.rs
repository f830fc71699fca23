//! The store of a limiter that is switched off: it admits everything and keeps nothing.

use crate::algebra::Bucket;
use crate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, BucketRecord, BucketStore, Charge, DebtorQuery,
    DebtorReport, adjust_all, apply_all,
};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::quota::{Quota, SECOND};

/// A store without buckets. Whatever is asked of it costs nothing, so each limit seems to be full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Off {
    clock: SystemClock,
}

impl Off {
    /// What these charges are answered if they cost nothing.
    pub(super) fn apply_free(mut self, charges: &[Charge<'_>]) -> Applied {
        let free = charges.iter().map(|charge| {
            let free = Charge::take(charge.id(), free(charge.bucket()), 0);
            charge.get_second_shard().map_or(free, |second| free.second_shard(second))
        });
        apply_all(&mut self, &free.collect::<Vec<_>>())
    }
}

impl Backend for Off {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        Answer::Ready(Ok(self.apply_free(charges)))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        Answer::Ready(Ok(adjust_all(&mut { *self }, adjustments)))
    }

    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        Answer::Ready(Ok(()))
    }

    fn debtors(&self, _: &DebtorQuery) -> Answer<DebtorReport> {
        let (at, debtors) = (self.clock.now(), Vec::new());
        Answer::Ready(Ok(DebtorReport::Page { at, debtors, next: None }))
    }
}

/// Numbers by which nothing costs nothing: also where a quota grants nothing.
fn free(bucket: &Bucket) -> &Bucket {
    static EMPTY: Bucket = match Bucket::new(&Quota::token_bucket(1, SECOND).capacity(0)) {
        Ok(bucket) => bucket,
        Err(error) => error.panic(),
    };
    if bucket.capacity() < 0 { &EMPTY } else { bucket }
}

impl BucketStore for Off {
    fn now(&mut self) -> Timestamp {
        self.clock.now()
    }

    fn read(&mut self, _: BucketId<'_>) -> Option<BucketRecord> {
        None
    }

    fn write(&mut self, _: BucketId<'_>, _: BucketRecord) {}

    fn forget(&mut self, _: BucketId<'_>) {}
}
