//! A store that other processes use as well, as far as the limiter can tell.

use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};

/// A memory store that the limiter does not know as one.
#[derive(Debug, Default)]
pub struct Shared(Memory);

impl Backend for Shared {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
}
