//! When calls without an answer in time are those of a silent store.

use std::time::Duration;

use smallvec::smallvec;
use tokio::sync::oneshot;
use tokio::time::{Instant, advance};

use super::super::job::Job;
use super::super::send_queues::{Bounds, SendQueues};
use crate::key_name::{HashTag, KeyNames};
use crate::operation::Operation;
use tollgate::backend::{BucketId, Key};

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
        let name = names.name(BucketId::new("clients", &Key::GLOBAL));
        let (reply, _answer) = oneshot::channel();
        let begun = Instant::now();
        let far = begun + Duration::from_secs(3_600);
        let job = Job::new(Operation::Resets(smallvec![name]), far, reply);
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
