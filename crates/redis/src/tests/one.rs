//! One bucket, for tests that need no more.

use crate::{Redis, RedisBuilder};
use tollgate::Quota;
use tollgate::algebra::{Bucket, Verdict};
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Key};

/// A store with one bucket.
pub(super) struct SingleBucket {
    pub(super) redis: Redis,
    pub(super) bucket: Bucket,
    key: Key,
}

impl SingleBucket {
    pub(super) const NAME: &[u8] = b"tollgate:one:alice";

    pub(super) async fn connect(redis: RedisBuilder, quota: &Quota) -> Self {
        let redis = redis.connect().await.unwrap();
        Self { redis, bucket: Bucket::new(quota).unwrap(), key: Key::from("alice") }
    }

    pub(super) fn id(&self) -> BucketId<'_> {
        BucketId::new("one", &self.key)
    }

    /// Takes tokens. Returns whether they were admitted, and how many are left.
    pub(super) async fn take(&self, tokens: u64) -> (bool, String) {
        let units = self.bucket.units(tokens).unwrap();
        let charge = Charge::take(self.id(), &self.bucket, units);
        let applied = self.redis.apply(&[charge]).wait().await.unwrap();
        let left = self.bucket.tokens(applied.readings()[0].state().value).to_string();
        (applied.verdict() == Verdict::Admitted, left)
    }

    pub(super) async fn give(&self, tokens: u64) {
        let refund =
            Adjustment::refund(self.id(), &self.bucket, self.bucket.units(tokens).unwrap());
        self.redis.adjust(&[refund]).wait().await.unwrap();
    }
}
