//! What charges an item: which limit, by which key, and how long it may wait.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Key;
use crate::limiter::{Limit, RateLimited, RateLimiter};

#[derive(Clone, Debug)]
pub(super) struct ItemCharge {
    pub(super) limiter: RateLimiter,
    pub(super) limit: Arc<Limit>,
    pub(super) key: Key,
    pub(super) max_wait: Duration,
}

impl ItemCharge {
    /// Takes tokens, and waits until they are there.
    ///
    /// Dropped before it completes, it gives them back.
    pub(super) async fn wait_for(self, cost: u64) -> Result<(), RateLimited> {
        let call = self.limiter.limit(&self.limit).key(self.key).cost(cost);
        // Dropping the permit gives nothing back.
        drop(call.reserve_within(self.max_wait).await?.ready().await);
        Ok(())
    }
}
