//! Calls of this process that have met on a bucket try one after the other.

use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// Locks for the buckets that calls have met on. A hundred calls on one bucket would otherwise load
/// it a hundred times for each one that succeeds.
#[derive(Debug)]
pub(super) struct BucketTurns {
    hasher: RandomState,
    /// A bucket has one of these, which it may share with others.
    stripes: Vec<Mutex<()>>,
}

/// Two buckets that calls meet on at the same time rarely share a lock.
const STRIPES: usize = 256;

impl BucketTurns {
    pub(super) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self { hasher: RandomState::new(), stripes }
    }

    /// Waits for the turn of a call whose first bucket has this name. BucketTurns come in the order in
    /// which they were asked for.
    pub(super) async fn take(&self, name: &str) -> Option<MutexGuard<'_, ()>> {
        let hash = usize::try_from(self.hasher.hash_one(name) >> 32).unwrap_or(0);
        let stripe = hash.checked_rem(self.stripes.len()).and_then(|nth| self.stripes.get(nth))?;
        Some(stripe.lock().await)
    }
}
