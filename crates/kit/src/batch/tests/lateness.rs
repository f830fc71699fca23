//! When calls without an answer in time are those of a silent store.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, advance, sleep_until};

use super::super::job::Job;
use super::super::send_queues::{Bounds, SendQueues};
use super::super::{Batcher, Carrier, Division};
use crate::key_name::{HashTag, KeyNames};
use crate::operation::{NamedOperation, Operation};
use crate::replay::Replay;
use tollgate::backend::{BackendError, BucketId, Key};

const MILLI: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_millis(50);

/// In a flood, this process reads all answers late. It seemed that the store was silent, and 5,269 of
/// 96,013 requests passed uncounted.
#[tokio::test(start_paused = true)]
async fn in_a_flood_a_store_that_answers_late_is_not_silent() {
    let names = KeyNames::new("tollgate".to_owned(), HashTag::Bucket, None).unwrap();
    let bounds = Bounds { calls_per_slot: 1, calls_per_group: 1, buckets_per_call: 64 };
    let mut queues = SendQueues::default();
    let mut slot = 0;
    for nth in 0..4 {
        let reset = Operation::resets(&[BucketId::new("clients", &Key::GLOBAL)]);
        let (reply, _answer) = oneshot::channel();
        let begun = Instant::now();
        let far = begun + Duration::from_secs(3_600);
        let job = Job::new(NamedOperation::new(reset, &names), far, reply);
        let starts = queues.push(slot, job, begun, &bounds);
        assert_eq!(starts, nth == 0);
        let taken = match starts {
            true => queues.take(&mut slot, &bounds),
            false => queues.take_more(&mut slot, &bounds),
        };
        assert_eq!(taken.jobs.len(), 1);
        advance(60 * MILLI).await;
        queues.note_answer(slot, begun, DEADLINE);
    }
    let two_deadlines_ago = Instant::now() - 2 * DEADLINE;
    assert!(queues.is_silent_since(slot, two_deadlines_ago, false));
    assert!(!queues.is_silent_since(slot, two_deadlines_ago, true));
    advance(2 * DEADLINE).await;
    assert!(queues.is_silent_since(slot, Instant::now() - 2 * DEADLINE, true));
}

/// A carrier that waits for a connection, in a process that is late.
#[derive(Debug)]
struct Unconnected;

impl Carrier for Unconnected {
    const STORE: &'static str = "unconnected";

    type Mark = ();

    async fn call(&self, _slot: u16, jobs: &[Job]) -> Result<Replay, BackendError> {
        sleep_until(jobs[0].deadline).await;
        Err(BackendError::timeout(Self::STORE, DEADLINE))
    }

    fn slot(&self, _operation: &NamedOperation) -> u16 {
        0
    }

    fn division(&self, _slot: u16, _error: &BackendError) -> Division {
        Division::None
    }

    fn mark(&self, _operation: &NamedOperation) {}

    fn is_late(&self, _: u16, _: Instant, _: Duration, _: bool) -> Option<bool> {
        Some(false)
    }
}

/// What waits for a connection knows nothing of this process. Its error was told to the callers: 3,623 of
/// 9,244 requests passed uncounted.
#[tokio::test(start_paused = true)]
async fn a_call_that_only_says_that_time_is_up_tells_no_outage() {
    let bounds = Bounds { calls_per_slot: 1, calls_per_group: 1, buckets_per_call: 64 };
    let batcher = Batcher::new(Unconnected, Handle::current(), DEADLINE, bounds);
    let names = KeyNames::new("tollgate".to_owned(), HashTag::Bucket, None).unwrap();
    let reset = Operation::resets(&[BucketId::new("clients", &Key::GLOBAL)]);
    let told = batcher.send(NamedOperation::new(reset, &names), batcher.deadline()).await;
    let told = told.unwrap_err();
    assert!(told.is_overload() && !told.is_outage(), "{told}");
}
