//! The fallback over a store that fails as the test says, through a limiter.

mod accounts;
mod faults;
mod outages;
mod policies;
mod warmth;

use std::sync::Arc;

use super::Fallback;
use crate::backend::tests::START;
use crate::backend::tests::faulty::{Fault, Faulty};
use crate::backend::{Answer, Backend, BucketId, Charge, Key, Memory};
use crate::clock::ManualClock;
use crate::limiter::{Limit, RateLimiter};
use crate::quota::{HOUR, Quota, SECOND};

static TEN: Limit = Limit::new("ten", Quota::token_bucket(10, HOUR));

/// A limiter on a store that the test can make fail, with a fallback, all on one clock.
struct Case {
    limiter: RateLimiter,
    fallback: Arc<Fallback<Arc<Faulty>, Arc<Memory>>>,
    store: Arc<Faulty>,
    local: Arc<Memory>,
    clock: ManualClock,
}

impl Case {
    fn new(nodes: u32) -> Self {
        Self::with(|fallback| fallback.nodes(nodes))
    }

    fn with(
        change: impl FnOnce(Fallback<Arc<Faulty>, Arc<Memory>>) -> Fallback<Arc<Faulty>, Arc<Memory>>,
    ) -> Self {
        let clock = ManualClock::new(START);
        let store = Faulty::new(Memory::new().clock(clock.clone()), |_| Fault::Late);
        let local = Arc::new(Memory::new().clock(clock.clone()));
        let fallback = Arc::new(change(Fallback::new(Arc::clone(&store), Arc::clone(&local))));
        let limiter = RateLimiter::new(Arc::clone(&fallback));
        Self { limiter, fallback, store, local, clock }
    }

    fn fail(&self) {
        self.store.set(Fault::FailLate);
    }

    fn recover(&self) {
        self.store.set(Fault::Late);
    }

    /// The whole tokens that are left of the limit while the store fails.
    async fn left_in_outage(&self, limit: &Limit) -> i64 {
        self.fail();
        let permit = self.limiter.limit(limit).cost(0).await.unwrap();
        self.recover();
        permit.remaining().cast_signed()
    }

    /// The whole tokens that the store holds.
    fn in_store(&self, limit: &Limit) -> i64 {
        held(&self.store.inner, limit)
    }

    /// The whole tokens that the local store holds, by the numbers of one node.
    fn in_local(&self, limit: &Limit) -> i64 {
        held(&self.local, limit)
    }
}

fn held(memory: &Memory, limit: &Limit) -> i64 {
    held_units(memory, limit).div_euclid(i64::try_from(limit.bucket().token()).unwrap())
}

fn held_units(memory: &Memory, limit: &Limit) -> i64 {
    let look = Charge::look(BucketId::new(limit.name(), &Key::GLOBAL), limit.bucket(), 0);
    let Answer::Ready(Ok(applied)) = memory.apply(&[look]) else { panic!() };
    applied.readings()[0].state().value
}
