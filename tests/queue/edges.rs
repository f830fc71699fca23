//! Rare paths of the queue: slots that cannot be undone, answers that no task reads, waiters that
//! are not polled, meters that settle several layers, and extreme numbers.
//!
//! Time is the runtime's and stands still, so instants are exact whatever the machine does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance};
use tollgate::algebra::check_history_with_returns;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::{Clock, TokioClock};
use tollgate::middleware::{ActualCost, Queue};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_testing::at_once;
use tollgate_testing::queue::{
    Late, Recorder, lines, ms, paused, poll, reserve, reserved, send, settled, tokens, waiter,
};
use tollgate_testing::shared::Shared;
use tower::{Layer, ServiceExt, service_fn};

/// One a second, and nothing saved up.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));

/// One every 5 ms, and nothing saved up.
static FAST: Limit = Limit::new("fast", Quota::token_bucket(200, SECOND).capacity(0));

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// In a former version, one slot that could not be undone stopped all undoing, even of a later slot
/// that became free meanwhile.
#[tokio::test(start_paused = true)]
async fn the_last_slot_is_undone_though_one_before_it_could_not_be() {
    let (store, limiter, memory) = Late::new();
    let first = reserved(&limiter, &SPACED, 1).await;
    let last = reserved(&limiter, &SPACED, 1).await;
    let held = store.close();
    drop(first);
    settled().await;
    drop(last);
    settled().await;
    store.open();
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SPACED), 0.0);
    assert_eq!(lines(&limiter), 0);
}

/// A runtime shuts down while the store is asked to undo a slot. In a former version, no task read
/// the answer, and the queue kept its limiter alive without end.
#[test]
fn a_runtime_that_shuts_down_leaves_no_queue_behind() {
    let (store, limiter, _) = Late::new();
    let runtime = runtime();
    let reservation = runtime.block_on(reserved(&limiter, &SPACED, 1));
    let _held = store.close();
    runtime.block_on(async {
        drop(reservation);
        settled().await;
    });
    assert_eq!(lines(&limiter), 1, "the store is being asked");
    drop(runtime);
    assert_eq!(lines(&limiter), 0);
}

/// Outside of a runtime, no task can read the answer of the store. In a former version, no later
/// slot of that bucket was undone either.
#[test]
fn a_reservation_that_is_dropped_outside_of_a_runtime_spoils_no_other() {
    static DAILY: Limit = Limit::new("daily", Quota::token_bucket(1, DAY).capacity(0));
    let (_, limiter, memory) = Late::new();
    let reservation = runtime().block_on(reserved(&limiter, &DAILY, 1));
    drop(reservation);
    let left = runtime().block_on(async {
        drop(reserved(&limiter, &DAILY, 5).await);
        settled().await;
        tokens(&memory, &DAILY)
    });
    assert!((-1.0..-0.9).contains(&left), "only the first stays spent: {left}");
    assert_eq!(lines(&limiter), 0);
}

/// If the answer of the store panics, no task reads it either.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_leaves_no_queue_behind() {
    #[derive(Debug)]
    struct Panics(Memory);

    impl Backend for Panics {
        fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
            self.0.apply(charges)
        }

        fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
            Answer::pending(async { panic!("a bug in a driver") })
        }

        fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
            self.0.reset(ids)
        }
    }

    let limiter = RateLimiter::new(Panics(Memory::new().clock(TokioClock::new())));
    drop(reserve(&limiter, &SPACED, 1));
    settled().await;
    assert_eq!(lines(&limiter), 0);
}

/// Two layers read one meter. In a former version, it settled only one of them.
#[tokio::test(start_paused = true)]
async fn a_meter_settles_every_layer() {
    static USER: Limit = Limit::new("user", Quota::token_bucket(100, HOUR));
    static ALL: Limit = Limit::new("all", Quota::token_bucket(1_000, HOUR));
    for is_late in [false, true] {
        let limiter = paused();
        let meters = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&meters);
        let inner = service_fn(move |_: Request<u64>| {
            let (cost, meter) = ActualCost::metered();
            if is_late {
                kept.lock().unwrap().push(meter);
            } else {
                meter.settle(7);
            }
            let mut response = Response::new(());
            response.extensions_mut().insert(cost);
            async move { Ok::<_, Infallible>(response) }
        });
        let inner = limiter.layer(&USER).cost(50).settle().layer(inner);
        let service = limiter.layer(&ALL).cost(50).settle().layer(inner);
        service.oneshot(Request::new(0)).await.unwrap();
        for meter in meters.lock().unwrap().drain(..) {
            meter.settle(7);
        }
        let left = (tokens(&limiter, &ALL), tokens(&limiter, &USER));
        assert_eq!(left, (993.0, 93.0), "late: {is_late}");
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_behind_a_waiter_that_is_not_polled_keep_their_order() {
    let limiter = paused();
    let idle = waiter(&limiter, &FAST, 1);
    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..40 {
        let (turn, ran) = (reserve(&limiter, &FAST, 1).ready(), Arc::clone(&ran));
        tasks.push(tokio::spawn(async move {
            let _permit = turn.await;
            ran.lock().unwrap().push(number);
        }));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*ran.lock().unwrap(), Vec::from_iter(0..40));
    drop(idle);
}

/// In a former version, they had to be polled one after another, and a waiter that was not polled
/// delayed all behind it.
#[tokio::test(start_paused = true)]
async fn all_waiters_that_are_due_are_granted_in_whatever_order_they_are_polled() {
    let limiter = paused();
    let idle = waiter(&limiter, &FAST, 1);
    let mut line: Vec<_> = (0..5).map(|_| waiter(&limiter, &FAST, 1)).collect();
    advance(ms(50)).await;
    let at: Vec<_> = line.iter_mut().rev().map(|one| poll(one).expect("granted").at()).collect();
    assert!(at.is_sorted_by(|later, earlier| later > earlier), "{at:?}");
    drop(idle);
}

/// In a former version, a slot that a smaller waiter had used was offered only at the cost of that
/// waiter.
#[tokio::test(start_paused = true)]
async fn a_slot_is_offered_at_its_full_size() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let five = waiter(&limiter, &SPACED, 5);
    let two = waiter(&limiter, &SPACED, 2);
    let three = waiter(&limiter, &SPACED, 3);
    // The last slot is kept, so that no slot can be undone.
    let _kept = reserve(&limiter, &SPACED, 1).keep();
    drop(five);
    // The second waiter has moved up to the slot of five tokens, and gives it up.
    drop(two);
    let _permit = three.await;
    assert_eq!(start.elapsed(), 5 * SECOND);
}

/// In a former version, it took a free slot away from waiters that could have used it.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_cost_zero_takes_no_free_slot() {
    for nothing_comes in [false, true] {
        let limiter = Shared::new().limiter();
        let start = Instant::now();
        let gone = waiter(&limiter, &SPACED, 5);
        let planned = reserve(&limiter, &SPACED, 1);
        drop(gone);
        let nothing = nothing_comes.then(|| waiter(&limiter, &SPACED, 0));
        let _permit = waiter(&limiter, &SPACED, 5).await;
        assert_eq!(start.elapsed(), 5 * SECOND, "{nothing_comes}");
        drop((nothing, planned));
    }
}

/// In a former version, a request took a place while the store was asked, even if it did not have
/// to wait then.
#[tokio::test(start_paused = true)]
async fn a_request_that_need_not_wait_takes_no_place_in_the_queue() {
    static ONE: Limit = Limit::new("one", Quota::token_bucket(1, SECOND));
    let (store, limiter, _) = Late::new();
    let queue = Queue::new(HOUR).max_waiters(1);
    let service = limiter.layer(&ONE).queue(queue).layer(Recorder::new());
    let held = store.close();
    let first = send(&service, Request::new(1)).await;
    let second = send(&service, Request::new(2)).await;
    held.let_go();
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
}

/// What it gives back counts as given back at that time, and not as refilled since.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_did_not_wait_gives_back_what_it_took() {
    for quota in [
        Quota::token_bucket(10, SECOND),
        Quota::fixed_window(10, SECOND).start(TokioClock::new().now()),
    ] {
        let limit = Limit::new("full", quota);
        let limiter = paused();
        let there = at_once(limiter.limit(&limit).cost(10).reserve()).unwrap();
        assert_eq!(there.wait(), Duration::ZERO);
        advance(SECOND).await;
        let mut ran = vec![(at_once(limiter.limit(&limit).cost(10)).unwrap().at(), 10)];
        let returned = [(ran[0].0, 10)];
        drop(there);
        ran.push((at_once(limiter.limit(&limit).cost(10)).unwrap().at(), 10));
        assert_eq!(check_history_with_returns(&quota, &ran, &returned).unwrap(), None, "{quota}");
        assert_eq!(tokens(&limiter, &limit), 0.0, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_did_not_wait_gives_back_what_has_not_been_refilled() {
    let limit = Limit::new("full", Quota::token_bucket(10, SECOND));
    let limiter = paused();
    for held in [Duration::ZERO, ms(200), SECOND] {
        let there = at_once(limiter.limit(&limit).cost(10).reserve()).unwrap();
        assert_eq!(tokens(&limiter, &limit), 0.0);
        advance(held).await;
        drop(there.ready());
        assert_eq!(tokens(&limiter, &limit), 10.0, "{held:?}");
    }
}

/// The answer comes after the call was dropped. The limiter reads it all the same, and gives the
/// tokens back.
#[tokio::test(start_paused = true)]
async fn a_reserve_call_that_is_dropped_gives_back_tokens_that_were_available() {
    static TEN: Limit = Limit::new("ten", Quota::token_bucket(10, HOUR));
    let (store, limiter, memory) = Late::new();
    let held = store.close();
    let mut call = limiter.limit(&TEN).cost(7).reserve();
    let poll = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending());
    drop(call);
    settled().await;
    assert_eq!(tokens(&memory, &TEN), 3.0);
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &TEN), 10.0);
}

#[tokio::test(start_paused = true)]
async fn the_longest_waits_and_jitters_do_not_overflow() {
    let limiter = paused();
    let mut line = Vec::new();
    for _ in 0..10 {
        let call = limiter.limit(&SPACED).cost(900_000_000).jitter(Duration::MAX).reserve();
        let reservation = at_once(call).unwrap();
        assert!(reservation.wait() >= Duration::from_secs(900_000_000));
        let mut ready = Box::pin(reservation.ready());
        assert!(poll(&mut ready).is_none());
        line.push(ready);
    }
    limiter.drain(Duration::MAX);
    limiter.drain(Duration::ZERO);
    advance(HOUR).await;
    // Only the waiters of a layer are drained, and these are not a layer's.
    for one in &mut line {
        assert!(poll(one).is_none());
    }
    drop(line);
    assert_eq!(lines(&limiter), 0);
}
