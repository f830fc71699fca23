//! Lists of charges, some of which lots pay: all of them, or none.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{advance, sleep, timeout};

use crate::Leasing;
use tollgate::algebra::{Units, Verdict};
use tollgate::backend::{Answer, Backend, BucketId, Charge, Key, OnFailure};
use tollgate::clock::{ManualClock, Timestamp};
use tollgate::{HOUR, Quota};

use super::driver::{COLD, HOT, Named};
use super::stores::{Manner, Moody};

const TRIP: Duration = Duration::from_millis(1);

/// Less than the lists of a test want.
const SCARCE: Named = Named("scarce", Quota::token_bucket(500, HOUR.saturating_mul(1_000)));

/// A node with lots, whose clock stands still from here on, so that nothing is given back.
pub(super) async fn standing_node(
    limit: &Named,
    manner: Manner,
) -> (Moody, ManualClock, Arc<Leasing<Moody>>) {
    let (store, clock) = (Moody::new(manner), ManualClock::new(Timestamp::UNIX_EPOCH));
    let node = Arc::new(Leasing::new(store.clone()).lease(&limit.limit()).clock(clock.clone()));
    let (key, bucket) = (Key::from("all"), limit.bucket());
    for _ in 0..40 {
        node.apply(&[limit.take(&key, &bucket, 20)]).wait().await.unwrap();
        advance(Duration::from_micros(200)).await;
        clock.advance(Duration::from_micros(200));
    }
    sleep(5 * TRIP).await;
    // A lot that waits for its start has it now.
    clock.advance(5 * TRIP);
    (store, clock, node)
}

/// What the store has left of the other limit, in tokens.
async fn left_of_cold(store: &Moody, key: &Key) -> u64 {
    let bucket = COLD.bucket();
    store.answers(Manner::AtOnce);
    let look = Charge::look(BucketId::new("cold", key), &bucket, 0);
    let applied = store.apply(&[look]).wait().await.unwrap();
    bucket.tokens(applied.readings()[0].state().value).whole()
}

#[tokio::test(start_paused = true)]
async fn lots_pay_nothing_for_a_list_that_fails() {
    for manner in [Manner::Fails, Manner::FailsLater, Manner::Dead] {
        let (store, _, node) = standing_node(&HOT, Manner::After(TRIP)).await;
        let (key, hot, cold) = (Key::from("all"), HOT.bucket(), COLD.bucket());
        let before = node.held(&key);
        store.answers(manner);
        for _ in 0..3 {
            let list = [HOT.take(&key, &hot, 7), COLD.take(&key, &cold, 2)];
            let error = node.apply(&list).wait().await.unwrap_err();
            assert!(error.is_outage(), "{error}");
            assert_eq!(node.held(&key), before, "{manner:?}");
        }
        assert_eq!(left_of_cold(&store, &key).await, 5, "{manner:?}");
    }
}

/// A caller that goes away, before the first poll and after each of them.
#[tokio::test(start_paused = true)]
async fn a_list_whose_caller_has_gone_takes_all_or_nothing() {
    let (key, hot, cold) = (Key::from("all"), HOT.bucket(), COLD.bucket());
    // With two, the list is refused in the end.
    for (tokens, left) in [(2, 3), (9, 5)] {
        for polls in 0..=4 {
            for manner in [Manner::After(2 * TRIP), Manner::Dead, Manner::FailsLater] {
                let (store, _, node) = standing_node(&HOT, Manner::After(TRIP)).await;
                let before = node.held(&key);
                store.answers(manner);
                let list = [HOT.take(&key, &hot, 7), COLD.take(&key, &cold, tokens)];
                let mut call = Box::pin(node.apply(&list).wait());
                for _ in 0..polls {
                    let polled = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready()));
                    if polled.await {
                        break;
                    }
                    advance(TRIP / 2).await;
                }
                drop(call);
                sleep(200 * TRIP).await;
                let seven = hot.units(7).unwrap();
                let is_paid = left_of_cold(&store, &key).await < 5;
                let paid: Units = if is_paid { seven } else { 0 };
                let what = format!("{manner:?}, {tokens} tokens, {polls} polls");
                assert_eq!(before - node.held(&key), paid, "{what}");
                if is_paid {
                    assert_eq!(left_of_cold(&store, &key).await, left, "{what}");
                }
            }
        }
    }
}

/// Many at once, of which some are left by their callers and some are refused: in the end, what the
/// lots have paid and what the store was charged are of the same lists.
#[test]
fn lists_at_once_charge_lots_and_store_alike() {
    let outer = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (store, _, node) = outer.block_on(standing_node(&HOT, Manner::After(TRIP)));
    let (key, hot, scarce) = (Key::from("all"), HOT.bucket(), SCARCE.bucket());
    let before = node.held(&key);
    assert!(before > 800, "{before}: another lot would pay, and come in between");
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let left = runtime.block_on(async {
        let calls = (0..800_u64).map(|nth| {
            let hot_part = Charge::take(BucketId::new("hot", &key), &hot, 1);
            let call = node.apply(&[hot_part, SCARCE.take(&key, &scarce, 1)]).wait();
            let patience = Duration::from_micros(nth * 7_919 % 2_500);
            tokio::spawn(async move { timeout(patience, call).await.is_err() })
        });
        let calls: Vec<_> = calls.collect();
        let mut left = 0;
        for call in calls {
            left += u32::from(call.await.unwrap());
        }
        sleep(200 * TRIP).await;
        left
    });
    let look = Charge::look(BucketId::new("scarce", &key), &scarce, 0);
    store.answers(Manner::AtOnce);
    let Answer::Ready(Ok(seen)) = store.apply(&[look]) else { panic!("at once") };
    let charged = scarce.capacity() - seen.readings()[0].state().value;
    // A part of a token is gained meanwhile.
    let token = scarce.units(1).unwrap();
    let lists = (charged + token - 1) / token;
    assert!(left > 0 && lists > 100, "{left} left, {lists} charged");
    assert_eq!(before - node.held(&key), lists, "{left} left");
}

/// All are dropped with the runtime in which they wait.
#[test]
fn lists_of_a_runtime_that_shuts_down_give_back_what_lots_have_paid() {
    const LISTS: usize = 20_000;
    let outer = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    for workers in [0, 2] {
        let (store, _, node) = outer.block_on(standing_node(&HOT, Manner::After(TRIP)));
        let key = Key::from("all");
        let before = node.held(&key);
        store.answers(Manner::Dead);
        let runtime = match workers {
            0 => Builder::new_current_thread().enable_all().build().unwrap(),
            _ => Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap(),
        };
        runtime.block_on(async {
            let (hot, cold) = (HOT.bucket(), COLD.bucket());
            for _ in 0..LISTS {
                let one = Charge::take(BucketId::new("hot", &key), &hot, 1);
                let call = node.apply(&[one, COLD.take(&key, &cold, 1)]);
                tokio::spawn(call.wait());
            }
            tokio::task::yield_now().await;
        });
        drop(runtime);
        assert_eq!(node.held(&key), before, "{workers} workers");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_limit_says_about_outages_goes_along() {
    let (hot, cold) = (HOT.bucket(), COLD.bucket());
    for said in [Some(OnFailure::Admit), Some(OnFailure::Refuse), None] {
        let store = Moody::new(Manner::AtOnce);
        let node = Leasing::new(store.clone()).lease(&HOT.limit());
        let key = Key::from("all");
        let take = HOT.take(&key, &hot, 1).on_failure(said);
        let large = HOT.take(&key, &hot, 50_000).on_failure(said);
        let look = Charge::look(BucketId::new("hot", &key), &hot, 0).on_failure(said);
        let other = COLD.take(&key, &cold, 5).on_failure(Some(OnFailure::Refuse));
        let calls: [(&[Charge<'_>], Verdict); 4] = [
            (&[take], Verdict::Admitted),
            (&[look], Verdict::Admitted),
            (&[take, other], Verdict::Admitted),
            (&[large, other], Verdict::Refused),
        ];
        for (charges, verdict) in calls {
            assert_eq!(node.apply(charges).wait().await.unwrap().verdict(), verdict);
            let each: Vec<_> = charges.iter().map(Charge::get_on_failure).collect();
            assert_eq!(store.said(), [each]);
        }
    }
}

/// A lot counts what the store has charged. So no wrapper may decide about it in place of a store.
#[tokio::test(start_paused = true)]
async fn a_lot_is_admitted_by_a_store_or_by_none() {
    let (store, _, node) = standing_node(&HOT, Manner::AtOnce).await;
    assert!(node.held(&Key::from("all")) > 0);
    let questions = store.said().into_iter().filter(|said| said.len() == 2);
    let questions: Vec<_> = questions.collect();
    assert!(!questions.is_empty());
    assert!(questions.iter().flatten().all(|said| *said == Some(OnFailure::Refuse)));
}
