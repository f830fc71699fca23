//! Slots that wait for a call of their group.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::job::Job;
use super::super::send_queues::{Bounds, SendQueues};
use crate::key_name::{HashTag, KeyNames};
use crate::operation::{NamedOperation, Operation};
use tollgate::backend::{BucketId, Key};

/// A slot whose jobs had expired was listed once more by the next job, so the list grew behind a server
/// that hangs.
#[test]
fn a_slot_waits_once_however_often_its_jobs_expire() {
    let names = KeyNames::new("tollgate".to_owned(), HashTag::Bucket, None).unwrap();
    let bounds = Bounds { calls_per_slot: 1, calls_per_group: 1, buckets_per_call: 64 };
    let now = Instant::now();
    let mut queues = SendQueues::default();
    let mut push = |slot, deadline| {
        let reset = Operation::resets(&[BucketId::new("clients", &Key::GLOBAL)]);
        let (reply, answer) = oneshot::channel();
        let job = Job::new(NamedOperation::new(reset, &names), deadline, reply);
        (queues.push(slot, job, now, &bounds), answer)
    };
    let far = now + Duration::from_secs(3_600);
    let (starts, _first) = push(0, far);
    assert!(starts);
    for _ in 0..100 {
        let (starts, _expired) = push(1, now);
        assert!(!starts);
    }
    let (_, _last) = push(1, far);
    assert_eq!(queues.waiting(0), 1);
    // The task of the first slot serves the other one, and ends.
    let mut slot = 0;
    assert_eq!(queues.take(&mut slot, &bounds).jobs.len(), 1);
    assert_eq!((queues.take_more(&mut slot, &bounds).jobs.len(), slot), (1, 1));
    assert_eq!(queues.take_more(&mut slot, &bounds).jobs.len(), 0);
    assert_eq!(queues.waiting(0), 0);
}
