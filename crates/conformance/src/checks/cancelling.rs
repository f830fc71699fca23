//! Calls whose futures are dropped before they have answered.

use std::future::poll_fn;
use std::task::Poll;

use super::super::subject::Subject;
use tollgate::algebra::Bucket;
use tollgate::backend::{Adjustment, Answer, BucketId, Charge, Key};

/// What each of the three buckets pays.
const UNITS: [i64; 3] = [3, 5, 7];

/// Drops calls of all kinds after each number of polls, and before the task has run and after.
/// Looks at the buckets then have to find that the whole call has taken effect once, or nothing of
/// it.
pub(crate) async fn a_dropped_call_takes_effect_at_most_once_and_never_in_part(subject: Subject) {
    let bucket = subject.lasting_bucket().await;
    for call in ["apply", "adjust", "reset"] {
        let mut dropped = Vec::new();
        'polls: for polls in 0..40_u64 {
            // How often other tasks run between the last poll and the drop.
            for turns in 0..5_u64 {
                let key = Key::from((polls, turns));
                let has_ended = start_and_drop(&subject, call, &key, &bucket, polls, turns).await;
                check(&subject, call, &key, &bucket, polls).await;
                dropped.push((polls, key));
                if has_ended && turns == 4 {
                    break 'polls;
                }
            }
        }
        // Calls that take effect later have had their time.
        for (polls, key) in dropped {
            check(&subject, call, &key, &bucket, polls).await;
        }
    }
}

fn ids(key: &Key) -> [BucketId<'_>; 3] {
    ["conformance-drop-a", "conformance-drop-b", "conformance-drop-c"]
        .map(|limit| BucketId::new(limit, key))
}

/// Starts a call, polls it so often, and drops it. Returns whether it had ended.
async fn start_and_drop(
    subject: &Subject,
    call: &str,
    key: &Key,
    bucket: &Bucket,
    polls: u64,
    turns: u64,
) -> bool {
    let (store, ids) = (&subject.store, ids(key));
    store.reset(&ids).wait().await.expect("a reset before the call");
    let take = [0, 1, 2].map(|nth| Charge::take(ids[nth], bucket, UNITS[nth]));
    let ended = match call {
        "apply" => poll_and_drop(store.apply(&take), polls, turns).await,
        "adjust" => {
            let pay = [0, 1, 2].map(|nth| Adjustment::refund(ids[nth], bucket, -UNITS[nth]));
            poll_and_drop(store.adjust(&pay), polls, turns).await
        }
        _ => {
            store.apply(&take).wait().await.expect("a charge before the reset");
            poll_and_drop(store.reset(&ids), polls, turns).await
        }
    };
    ended.inspect(|failed| assert!(!failed, "`Backend::{call}` of three buckets fails")).is_some()
}

/// Polls an answer so often, each time when it asks to be polled, and drops it. Returns whether it
/// failed, if it has ended.
async fn poll_and_drop<T>(answer: Answer<T>, polls: u64, turns: u64) -> Option<bool> {
    let mut answer = match answer {
        Answer::Ready(answer) => return Some(answer.is_err()),
        Answer::Pending(answer) => answer,
    };
    let mut left = polls;
    let ended = poll_fn(|cx| {
        let Some(less) = left.checked_sub(1) else { return Poll::Ready(None) };
        left = less;
        match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer.is_err())),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    let ended = ended.await;
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    ended
}

/// Looks at the buckets of a call: all have paid once, or none has.
async fn check(subject: &Subject, call: &str, key: &Key, bucket: &Bucket, polls: u64) {
    let look = ids(key).map(|id| Charge::look(id, bucket, 0));
    let applied = subject.store.apply(&look).wait().await.expect("a look");
    let held = [0, 1, 2].map(|nth| applied.readings()[nth].state().value);
    let full = [bucket.capacity(); 3];
    let paid = [0, 1, 2].map(|nth| bucket.capacity() - UNITS[nth]);
    assert!(
        held == full || held == paid,
        "`Backend::{call}` breaks the contract: it was polled {polls} times and dropped\n\
         asked: {UNITS:?} units of three buckets\n\
         contract: the buckets hold {full:?} or {paid:?}\n\
         answered: they hold {held:?}"
    );
}
