//! Stores that fail, answer late or never, and callers that go away.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};

use crate::Leasing;
use tollgate::algebra::Verdict;
use tollgate::backend::{Backend, BackendError, BucketId, Key};
use tollgate::clock::TokioClock;
use tollgate::{Quota, SECOND};

use super::driver::{COLD, Named, is_admitted, node, take, warm_up};
use super::stores::{Manner, Moody};

const TRIP: Duration = Duration::from_millis(1);

/// Whatever happens to one call, the bound holds, and the node recovers.
#[tokio::test(start_paused = true)]
async fn a_failure_of_any_call_costs_at_most_its_tokens() {
    for manner in
        [Manner::Fails, Manner::FailsAfter, Manner::Dead, Manner::Mute, Manner::After(SOON)]
    {
        let mut reached = true;
        let mut nth = 0;
        while reached && nth < 20 {
            let store = Moody::with(Manner::After(TRIP), Some((nth, manner)));
            let node = node(&store);
            let begun = Instant::now();
            let mut admitted = 0_u64;
            for _ in 0..1_200 {
                admitted += u64::from(is_admitted(&node, 1).await);
                advance(Duration::from_micros(150)).await;
            }
            let gained = begun.elapsed().as_micros() as u64 / 10;
            assert!(admitted <= 100_000 + gained + 1, "{manner:?} of call {nth}: {admitted}");
            assert!(admitted > 200, "{manner:?} of call {nth}: {admitted} admitted");
            sleep(2 * SOON).await;
            reached = store.calls() > nth;
            // If that call is the one that fails, the next one is not.
            let again = is_admitted(&node, 1).await || is_admitted(&node, 1).await;
            assert!(again, "{manner:?} of call {nth}: no recovery");
            nth += 1;
        }
        assert!(nth > 5, "{manner:?}: only {nth} calls");
    }
}

const SOON: Duration = Duration::from_millis(300);

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_fails_requests_within_its_deadline_and_then_at_once() {
    let store = Moody::new(Manner::After(TRIP));
    let node = node(&store);
    warm_up(&node).await;
    store.answers(Manner::Dead);
    let begun = Instant::now();
    // The lots last for a while, and are void in the end.
    while begun.elapsed() < SOON && is_admitted(&node, 20).await {
        advance(Duration::from_micros(100)).await;
    }
    let mut slowest = Duration::ZERO;
    let mut at_once = 0;
    for _ in 0..200 {
        let asked = Instant::now();
        let error = take(&node, 1).await.err();
        slowest = slowest.max(asked.elapsed());
        at_once += u32::from(asked.elapsed().is_zero());
        assert!(error.is_none_or(|error| error.is_outage()));
        advance(Duration::from_micros(500)).await;
    }
    assert!(slowest <= Duration::from_millis(80), "{slowest:?}");
    assert!(at_once > 100, "{at_once} failed at once");
    store.answers(Manner::After(TRIP));
    sleep(2 * SOON).await;
    for _ in 0..100 {
        assert!(is_admitted(&node, 1).await);
        advance(Duration::from_micros(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_lot_is_used_as_long_as_it_lives() {
    let store = Moody::new(Manner::After(TRIP));
    let node = node(&store);
    warm_up(&node).await;
    store.answers(Manner::After(Duration::from_millis(120)));
    let mut verdicts = [0_u32; 2];
    for _ in 0..4_000 {
        verdicts[usize::from(is_admitted(&node, 1).await)] += 1;
        advance(Duration::from_micros(100)).await;
    }
    let [failed, admitted] = verdicts;
    assert!(admitted > 500 && failed > 0, "{verdicts:?}");
}

/// Callers that go away, at each of their awaits.
#[tokio::test(start_paused = true)]
async fn a_dropped_caller_takes_nothing_from_others() {
    for polls in 1..=3 {
        let store = Moody::new(Manner::After(2 * TRIP));
        let node = node(&store);
        let mut dropped = 0;
        for _ in 0..300 {
            let mut call = pin!(take(&node, 1));
            let mut left = polls;
            let answered = poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if left == 1 => Poll::Ready(None),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            });
            dropped += u32::from(answered.await.is_none());
            advance(Duration::from_micros(100)).await;
        }
        assert!(polls > 1 || dropped > 0);
        // The others are served all the same.
        for _ in 0..100 {
            let applied = take(&node, 1).await.unwrap();
            assert_eq!(applied.verdict(), Verdict::Admitted);
            advance(Duration::from_micros(100)).await;
        }
    }
}

/// Lots live for 20 ms.
const BRIEF: Named =
    Named("brief", Quota::token_bucket(1_000, SECOND).max_reserved(0).capacity(40));

/// What was charged longer ago than a life may have been replaced. That is an outage, if it is the
/// store that takes so long.
#[tokio::test(start_paused = true)]
async fn a_charge_that_takes_a_life_fails_at_the_end_of_it() {
    let store = Moody::new(Manner::After(30 * TRIP));
    let node = Leasing::new(store).lease(&BRIEF.limit()).clock(TokioClock::new());
    let (key, brief, cold) = (Key::from("all"), BRIEF.bucket(), COLD.bucket());
    let one = BRIEF.take(&key, &brief, 1);
    for list in [vec![one], vec![one, COLD.take(&key, &cold, 1)]] {
        let asked = Instant::now();
        let error = node.apply(&list).wait().await.unwrap_err();
        assert!(error.is_timeout() && error.is_outage(), "{error}");
        assert!(asked.elapsed() <= 21 * TRIP, "{:?}", asked.elapsed());
    }
}

/// The next request has to wait for the answer to a question.
async fn drop_lots(node: &Leasing<Moody>) {
    let key = Key::from("all");
    node.reset(&[BucketId::new("hot", &key)]).wait().await.unwrap();
}

/// The timer of the wrapper called its lateness an outage: of a flood of a leased key, requests passed
/// uncounted. `OnFailure::Admit` is for a store that is silent for two deadlines.
#[tokio::test(start_paused = true)]
async fn in_a_crowd_of_callers_only_a_silent_store_is_an_outage() {
    for (manner, is_silent) in
        [(Manner::After(65 * TRIP), false), (Manner::Dead, true), (Manner::After(SOON), true)]
    {
        let store = Moody::new(Manner::After(TRIP));
        let node = node(&store);
        warm_up(&node).await;
        drop_lots(&node).await;
        store.answers(manner);
        let outages = async || {
            let calls = (0..600).map(|_| take(&node, 1));
            let told = futures_util::future::join_all(calls).await;
            told.into_iter().filter(|one| one.as_ref().is_err_and(BackendError::is_outage)).count()
        };
        assert_eq!(outages().await, 0, "{manner:?}, late");
        // Two deadlines after the question.
        sleep(60 * TRIP).await;
        let later = outages().await;
        assert_eq!(later > 0, is_silent, "{manner:?}, later: {later}");
    }
}

/// As above, of few callers, in a process in which each task that is ready takes some milliseconds.
#[tokio::test(start_paused = true)]
async fn in_a_busy_process_only_a_silent_store_is_an_outage() {
    for (manner, is_silent) in
        [(Manner::After(65 * TRIP), false), (Manner::Dead, true), (Manner::After(SOON), true)]
    {
        let store = Moody::new(Manner::After(TRIP));
        let node = node(&store);
        warm_up(&node).await;
        drop_lots(&node).await;
        store.answers(manner);
        let busy = tokio::spawn(async {
            loop {
                advance(2 * TRIP).await;
            }
        });
        let late = take(&node, 1).await.unwrap_err();
        assert!(late.is_overload(), "{manner:?}, late: {late}");
        busy.abort();
        sleep(60 * TRIP).await;
        let later = take(&node, 1).await.err();
        assert_eq!(later.is_some_and(|error| error.is_outage()), is_silent, "{manner:?}, later");
    }
}

/// A client can make this process late. Its requests must not pass for that.
#[tokio::test]
async fn a_charge_that_is_late_because_of_this_process_is_no_outage() {
    let store = Moody::new(Manner::After(2 * TRIP));
    let node = Leasing::new(store).lease(&BRIEF.limit()).clock(TokioClock::new());
    let (key, brief, cold) = (Key::from("all"), BRIEF.bucket(), COLD.bucket());
    let one = BRIEF.take(&key, &brief, 1);
    for list in [vec![one], vec![one, COLD.take(&key, &cold, 1)]] {
        let busy = async { std::thread::sleep(100 * TRIP) };
        let (answer, ()) = tokio::join!(node.apply(&list).wait(), busy);
        let error = answer.unwrap_err();
        assert!(error.is_overload() && !error.is_outage(), "{error}");
    }
}
