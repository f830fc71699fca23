//! The store under test, and how it is made.

use std::fmt;
use std::sync::Arc;

use tollgate::algebra::Bucket;
use tollgate::backend::{Backend, BucketId, Charge, Key};
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate::quota::{DAY, Quota};

/// The time of a clock that the suite sets, before it first moves it: an instant in 2100, so that
/// nothing expires by the clock of a real server.
pub const START: Timestamp = Timestamp::from_micros(4_102_444_800_123_456);

/// What a closure returns for a store: the store itself, or a future of it. `M` tells which.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a store nor a future of one",
    note = "let the closure return a `Backend`, or an `async` block that does"
)]
pub trait IntoStore<M> {
    /// Waits for the store.
    fn into_store(self) -> impl Future<Output = Arc<dyn Backend>>;
}

/// Marks a store that is there at once.
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub struct AtOnce;

/// Marks a future of a store.
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub struct Later;

impl<B: Backend> IntoStore<AtOnce> for B {
    async fn into_store(self) -> Arc<dyn Backend> {
        Arc::new(self)
    }
}

impl<B: Backend, F: Future<Output = B>> IntoStore<Later> for F {
    async fn into_store(self) -> Arc<dyn Backend> {
        Arc::new(self.await)
    }
}

/// The store under test, and its clock if the suite can set it.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) store: Arc<dyn Backend>,
    pub(super) clock: Option<ManualClock>,
}

impl Subject {
    /// The time of the store, read by a look at a bucket.
    pub(super) async fn now(&self) -> Timestamp {
        if let Some(clock) = &self.clock {
            return clock.now();
        }
        let (key, bucket) = (Key::GLOBAL, Bucket::new(&Quota::token_bucket(1, DAY)).unwrap());
        let look = Charge::look(BucketId::new("conformance-now", &key), &bucket, 0);
        self.store.apply(&[look]).wait().await.expect("the store answers a look").now()
    }

    /// A bucket of 1,000 tokens, each worth one unit, that gains nothing while the suite runs.
    pub(super) async fn lasting_bucket(&self) -> Bucket {
        // An hour ago, so that no window begins now if the clocks of servers differ.
        let start = Timestamp::from_micros(self.now().await.as_micros() - 3_600_000_000);
        Bucket::new(&Quota::fixed_window(1_000, DAY * 36_500).start(start)).unwrap()
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}
