//! Calls that panic, and callers that leave.

use std::sync::Mutex;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::super::{Batcher, Bounds, Carrier, Division, Job};
use crate::key_name::{HashTag, KeyNames};
use crate::operation::{NamedOperation, Operation};
use crate::replay::Replay;
use tollgate::algebra::Bucket;
use tollgate::backend::{Adjustment, BackendError, BucketId, Key};
use tollgate::{HOUR, Quota};

/// Notes what each call carries, and then panics, or fails once it is told to.
#[derive(Debug, Default)]
struct BrokenCarrier {
    panics: bool,
    sent: Mutex<Vec<usize>>,
    go_on: Notify,
}

impl Carrier for BrokenCarrier {
    const STORE: &'static str = "broken";

    type Mark = ();

    async fn call(&self, _slot: u16, jobs: &[Job]) -> Result<Replay, BackendError> {
        self.sent.lock().unwrap().push(jobs.len());
        assert!(!self.panics, "it is broken");
        self.go_on.notified().await;
        Err(BackendError::unavailable("broken", "it is"))
    }

    fn slot(&self, _operation: &NamedOperation) -> u16 {
        0
    }

    fn division(&self, _slot: u16, _error: &BackendError) -> Division {
        Division::None
    }

    fn mark(&self, _operation: &NamedOperation) {}
}

fn batcher(carrier: BrokenCarrier) -> Batcher<BrokenCarrier> {
    let bounds = Bounds { calls_per_slot: 1, calls_per_group: 1, buckets_per_call: 64 };
    Batcher::new(carrier, Handle::current(), HOUR, bounds)
}

fn names() -> KeyNames {
    KeyNames::new("tollgate".to_owned(), HashTag::Bucket, None).unwrap()
}

fn reset(key: u64) -> NamedOperation {
    let key = Key::from(key);
    NamedOperation::new(Operation::resets(&[BucketId::new("clients", &key)]), &names())
}

/// All callers were told that the runtime had shut down, also those of calls that did not panic.
#[tokio::test]
async fn a_call_that_panics_fails_its_own_callers_and_is_told_as_what_it_is() {
    let batcher = batcher(BrokenCarrier { panics: true, ..BrokenCarrier::default() });
    let both = [1, 2].map(|key| batcher.send(reset(key), batcher.deadline()));
    for answer in futures_util::future::join_all(both).await {
        let told = answer.unwrap_err().to_string();
        assert_eq!(told, "broken backend has a bug: a call panicked (please report this)");
    }
    // The slot goes on.
    assert!(batcher.send(reset(3), batcher.deadline()).await.is_err());
    assert_eq!(batcher.carrier().sent.lock().unwrap().iter().sum::<usize>(), 3);
    let told = batcher.spawn(async { panic!("a task") as Result<(), _> }).await.unwrap_err();
    assert!(told.to_string().contains("a call panicked"), "{told}");
}

/// A refund that waited behind other calls was not sent when its future was dropped.
#[tokio::test]
async fn a_refund_that_waits_is_sent_although_its_future_is_gone() {
    let batcher = batcher(BrokenCarrier::default());
    let first = tokio::spawn(batcher.send(reset(1), batcher.deadline()));
    while batcher.carrier().sent.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let (key, bucket) = (Key::from(2_u64), Bucket::new(&Quota::token_bucket(5, HOUR)).unwrap());
    let refund = Adjustment::refund(BucketId::new("clients", &key), &bucket, 1);
    let refund = NamedOperation::new(Operation::adjustments(&[refund]), &names());
    drop(batcher.send(refund, batcher.deadline()));
    batcher.carrier().go_on.notify_one();
    assert!(first.await.unwrap().is_err());
    while batcher.carrier().sent.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*batcher.carrier().sent.lock().unwrap(), [1, 1]);
}
