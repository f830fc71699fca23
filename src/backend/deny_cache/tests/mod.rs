//! The cache over a memory store, beside one without a cache.

mod exact;
mod floods;
mod returns;

use std::sync::Arc;
use std::time::Duration;

use super::DenyCache;
use crate::algebra::{Bucket, Verdict};
use crate::backend::tests::START;
use crate::backend::tests::faulty::{Fault, Faulty};
use crate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Key, Memory};
use crate::clock::ManualClock;
use crate::quota::{HOUR, Quota, SECOND};

/// A cache around a store that the test can make fail, both on one clock.
struct Case {
    cache: DenyCache<Arc<Faulty>>,
    store: Arc<Faulty>,
    clock: ManualClock,
    bucket: Bucket,
}

impl Case {
    fn new(script: impl FnMut(u64) -> Fault + Send + 'static) -> Self {
        let clock = ManualClock::new(START);
        let store = Faulty::new(Memory::new().clock(clock.clone()), script);
        let cache = DenyCache::new(Arc::clone(&store)).clock(clock.clone());
        let bucket = Bucket::new(&Quota::token_bucket(10, HOUR)).unwrap();
        Self { cache, store, clock, bucket }
    }

    fn apply(&self, key: &Key, tokens: u64) -> Answer<Applied> {
        let units = self.bucket.units(tokens).unwrap();
        self.cache.apply(&[Charge::take(BucketId::new("limit", key), &self.bucket, units)])
    }

    /// Takes tokens of the global key, and returns whether they were there.
    async fn take(&self, tokens: u64) -> bool {
        self.apply(&Key::GLOBAL, tokens).wait().await.unwrap().verdict() == Verdict::Admitted
    }

    fn refund(&self, tokens: u64) -> Answer<Applied> {
        let units = self.bucket.units(tokens).unwrap();
        let id = BucketId::new("limit", &Key::GLOBAL);
        self.cache.adjust(&[Adjustment::refund(id, &self.bucket, units)])
    }

    fn reset(&self) -> Answer<()> {
        self.cache.reset(&[BucketId::new("limit", &Key::GLOBAL)])
    }

    /// Whether a look of the store itself finds so many tokens.
    fn has(&self, tokens: u64) -> bool {
        let units = self.bucket.units(tokens).unwrap();
        let look = Charge::look(BucketId::new("limit", &Key::GLOBAL), &self.bucket, units);
        let Answer::Ready(Ok(applied)) = self.store.inner.apply(&[look]) else { panic!() };
        applied.verdict() == Verdict::Admitted
    }
}
