//! The breaker over a store that fails as the test says, with a clock that the test sets.

mod races;
mod rules;

use std::sync::Arc;
use std::time::Duration;

use super::{CircuitBreaker, CircuitState};
use crate::algebra::Bucket;
use crate::backend::tests::START;
use crate::backend::tests::faulty::{Fault, Faulty};
use crate::backend::{Answer, Applied, Backend, BackendError, BucketId, Charge, Key, Memory};
use crate::clock::ManualClock;
use crate::quota::{HOUR, Quota};

const PAUSE: Duration = Duration::from_millis(100);

/// A breaker that opens after three failures, its store, and its clock.
struct Case {
    breaker: CircuitBreaker<Arc<Faulty>>,
    store: Arc<Faulty>,
    clock: ManualClock,
}

impl Case {
    fn new(script: impl FnMut(u64) -> Fault + Send + 'static) -> Self {
        let clock = ManualClock::new(START);
        let store = Faulty::new(Memory::new().clock(clock.clone()), script);
        let breaker = CircuitBreaker::new(Arc::clone(&store)).failures(3).pause(PAUSE);
        let breaker = breaker.max_pause(10 * PAUSE).clock(clock.clone());
        Self { breaker, store, clock }
    }

    /// The answer to a charge of one token; the limit holds a million.
    fn ask(&self) -> Answer<Applied> {
        self.ask_of("limit", 1)
    }

    fn ask_of(&self, limit: &str, tokens: u64) -> Answer<Applied> {
        let bucket = Bucket::new(&Quota::token_bucket(1_000_000, HOUR)).unwrap();
        let units = bucket.units(tokens).unwrap();
        let key = Key::GLOBAL;
        self.breaker.apply(&[Charge::take(BucketId::new(limit, &key), &bucket, units)])
    }

    /// Asks and waits.
    async fn call(&self) -> Result<Applied, BackendError> {
        self.ask().wait().await
    }

    /// Makes the breaker open.
    async fn open(&self) {
        self.store.set(Fault::Fail);
        while self.breaker.state() != CircuitState::Open {
            self.call().await.unwrap_err();
        }
    }
}
