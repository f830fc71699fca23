//! A disk without room.

use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::TestDir;
use crate::Durability;
use crate::decider::Decider;
use crate::file::BucketFile;
use crate::inbox::{DecisionJob, Inbox};
use tollgate::algebra::Bucket;
use tollgate::backend::{Applied, BackendError, BucketId, Charge, Key};
use tollgate::clock::SystemClock;
use tollgate::{HOUR, Quota};
use tollgate_kit::operation::Operation;

/// Every call made a commit, which failed, and for which the calls behind it waited.
#[test]
fn on_a_full_disk_calls_do_not_wait_until_the_next_commit_has_failed_as_well() {
    let dir = TestDir::new();
    let file = Arc::new(BucketFile::open(&dir.file("limits.db")).unwrap());
    let (inbox, (commits, to_commit)) = (Arc::new(Inbox::default()), mpsc::channel());
    let clock = Arc::new(SystemClock::new());
    let decider = Decider::new(file, Arc::clone(&inbox), clock, Durability::Durable, commits);
    let decider = thread::spawn(move || decider.run());
    let ask = |key: u64| -> Result<Applied, BackendError> {
        let (key, bucket) = (Key::from(key), Bucket::new(&Quota::token_bucket(5, HOUR)).unwrap());
        let charge = Charge::take(BucketId::new("logins", &key), &bucket, 1);
        let (reply, answer) = oneshot::channel();
        inbox
            .push(DecisionJob { operation: Some(Box::new(Operation::charges(&[charge]))), reply })
            .unwrap();
        answer.blocking_recv().unwrap().0
    };
    let (is_full, disk) = mpsc::channel();
    let reports = Arc::clone(&inbox);
    let disk = thread::spawn(move || {
        let mut failed = 0;
        for _commit in to_commit {
            // Room again, once that is told.
            let has_room = disk.try_recv().is_ok();
            failed += u32::from(!has_room);
            let full = BackendError::full("embedded", "no room");
            reports.report(if has_room { Ok(()) } else { Err(full) });
            if has_room {
                break;
            }
        }
        failed
    });
    for key in 0..400 {
        assert!(ask(key).unwrap_err().is_full());
    }
    is_full.send(()).unwrap();
    while ask(400).is_err() {
        thread::yield_now();
    }
    let failed = disk.join().unwrap();
    assert!(failed < 100, "{failed} of 400 calls tried");
    inbox.close();
    drop(decider.join());
}
