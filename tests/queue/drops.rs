//! Requests that are dropped: the queue gives their slots to the waiters behind, and the bucket
//! gets back exactly what no waiter can use.
//!
//! Time is the runtime's and stands still, so instants are exact whatever the machine does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate::algebra::check_history;
use tollgate::clock::{Clock, TokioClock};
use tollgate::key::Head;
use tollgate::middleware::{ActualCost, Queue, RateLimit, ResponseFuture};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{
    Late, Recorder, Running, lines, ms, paused, reserve, send, settled, tokens,
};
use tower::{Layer, Service, ServiceExt, service_fn};

/// One token a second. It can hold one token, which shows whether one is given back, and holds none
/// at first.
static SLOW: Limit = Limit::new("slow", Quota::token_bucket(1, SECOND).capacity(1).initial(0));

#[derive(Clone, Copy)]
struct Cost(u64);

fn cost(head: &Head<'_>) -> u64 {
    head.extensions().get::<Cost>().map_or(1, |cost| cost.0)
}

fn costing(number: u64, tokens: u64) -> Request<u64> {
    let mut request = Request::new(number);
    request.extensions_mut().insert(Cost(tokens));
    request
}

type Call<S> = Pin<Box<ResponseFuture<S, u64>>>;

/// Calls the service with a request, without polling its answer.
fn call<S>(service: &RateLimit<S>, request: Request<u64>) -> Call<S>
where
    S: Service<Request<u64>, Response = Response<()>> + Clone,
{
    let mut service = service.clone();
    let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(Ok(()))));
    Box::pin(service.call(request))
}

/// Polls an answer that is not there yet. It wakes no task.
#[track_caller]
fn pend<S>(call: &mut Call<S>)
where
    S: Service<Request<u64>, Response = Response<()>> + Clone,
{
    let poll = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending());
}

/// Requests on `SLOW`, which wait as long as it takes.
fn service(limiter: &RateLimiter) -> (Recorder, RateLimit<Recorder>) {
    let inner = Recorder::new();
    (inner.clone(), limiter.layer(&SLOW).cost_with(cost).queue(HOUR).layer(inner))
}

fn request(number: u64) -> Request<u64> {
    Request::new(number)
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_its_first_poll_gives_up_its_slot() {
    let limiter = paused();
    let (inner, service) = service(&limiter);
    // Dropped before the limiter was asked.
    drop(service.clone().oneshot(request(0)));
    assert_eq!(tokens(&limiter, &SLOW), 0.0);
    drop(call(&service, request(1)));
    assert_eq!(tokens(&limiter, &SLOW), 0.0, "undone");
    let gone = call(&service, request(2));
    let next = send(&service, request(3)).await;
    let last = send(&service, request(4)).await;
    assert_eq!(tokens(&limiter, &SLOW), -3.0);
    drop(gone);
    assert_eq!(
        tokens(&limiter, &SLOW),
        -2.0,
        "the waiters behind moved up, and the last slot is undone"
    );
    for answer in [next, last] {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(inner.ran(), [(3, SECOND), (4, SECOND * 2)]);
    // A request that need not wait calls the inner service at once, and its token is spent.
    tokio::time::sleep(SECOND).await;
    assert_eq!(tokens(&limiter, &SLOW), 1.0);
    drop(call(&service, request(5)));
    assert_eq!(tokens(&limiter, &SLOW), 0.0);
    assert_eq!(inner.ran().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_the_store_is_asked_gives_up_its_slot() {
    let (store, limiter, memory) = Late::new();
    let (inner, service) = service(&limiter);
    let held = store.close();
    let mut gone = call(&service, request(1));
    pend(&mut gone);
    drop(gone);
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), -1.0, "the answer of the store is still held back");
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), 0.0, "undone");

    // The answer is read even if the request was never polled.
    let held = store.close();
    drop(call(&service, request(2)));
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), 0.0);

    // The waiter behind gets its slot, and gives up its own.
    let held = store.close();
    let mut gone = call(&service, request(3));
    pend(&mut gone);
    store.open();
    let next = send(&service, request(4)).await;
    settled().await;
    drop(gone);
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), -2.0);
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), -1.0);
    assert_eq!(next.await.unwrap().status(), StatusCode::OK);
    assert_eq!(inner.ran(), [(4, SECOND)]);

    // A request that need not have waited keeps its token, and does not run.
    tokio::time::sleep(SECOND).await;
    assert_eq!(tokens(&memory, &SLOW), 1.0);
    let held = store.close();
    let mut gone = call(&service, request(5));
    pend(&mut gone);
    drop(gone);
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), 0.0);
    assert_eq!(inner.ran(), [(4, SECOND)]);
}

/// No waiter may get its slot then: the limiter learns too late which waiters came after it.
#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_the_store_is_asked_delays_no_waiter() {
    for gone_is_answered_first in [false, true] {
        let (store, limiter, memory) = Late::new();
        let (inner, service) = service(&limiter);
        let held = store.close();
        let mut gone = call(&service, request(1));
        pend(&mut gone);
        let later = store.close();
        let next = send(&service, request(2)).await;
        store.open();
        drop(gone);
        let order = if gone_is_answered_first { [&held, &later] } else { [&later, &held] };
        for held in order {
            held.let_go();
            settled().await;
        }
        assert_eq!(next.await.unwrap().status(), StatusCode::OK);
        let ran = inner.ran();
        assert!(matches!(ran[..], [(2, at)] if (SECOND..=SECOND * 2).contains(&at)), "{ran:?}");
        assert!((-1.0..=0.0).contains(&tokens(&memory, &SLOW)));
    }
}

/// The store gets the undos in any order if it is asked all at once, and only the last slot can be
/// undone.
#[tokio::test(start_paused = true)]
async fn requests_dropped_while_the_store_is_slow_give_back_all_slots() {
    let (store, limiter, memory) = Late::new();
    let (_, service) = service(&limiter);
    let mut answers = Vec::new();
    for number in 0..5 {
        answers.push(send(&service, request(number)).await);
    }
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), -5.0);
    let held = store.close();
    for answer in answers {
        answer.abort();
        settled().await;
    }
    assert_eq!(tokens(&memory, &SLOW), -5.0);
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), 0.0);
}

/// The undo fails, as a request came meanwhile. That request waits by then, and gets the slot.
#[tokio::test(start_paused = true)]
async fn a_slot_that_could_not_be_undone_is_offered_again() {
    let (store, limiter, memory) = Late::new();
    let (inner, service) = service(&limiter);
    let first = send(&service, request(1)).await;
    settled().await;
    let held = store.close();
    first.abort();
    settled().await;
    store.open();
    let second = send(&service, request(2)).await;
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), -2.0);
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SLOW), -1.0, "then its own slot is undone");
    second.await.unwrap();
    assert_eq!(inner.ran(), [(2, SECOND)]);
}

/// The request takes its place before the store is asked, and must free it when it is dropped.
#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_the_store_is_asked_frees_its_place_in_the_queue() {
    let (store, limiter, _) = Late::new();
    let queue = Queue::new(HOUR).max_waiters(1);
    let service = limiter.layer(&SLOW).queue(queue).layer(Recorder::new());
    let held = store.close();
    let mut gone = call(&service, request(1));
    pend(&mut gone);
    drop(gone);
    store.open();
    held.let_go();
    settled().await;
    let next = service.clone().oneshot(request(2)).await.unwrap();
    assert_eq!(next.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_dropped_waiter_goes_to_the_waiters_behind() {
    for gone in 0..4 {
        let limiter = paused();
        let (inner, service) = service(&limiter);
        let mut answers = Vec::new();
        for number in 0..4 {
            answers.push(send(&service, request(number)).await);
        }
        tokio::time::sleep(ms(500)).await;
        answers.remove(gone).abort();
        settled().await;
        assert_eq!(tokens(&limiter, &SLOW), -2.5, "{gone}");
        for answer in answers {
            assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
        }
        let stayed = (0..4).filter(|&number| usize::try_from(number) != Ok(gone));
        let turns = (1..).map(|turn| SECOND * turn);
        assert_eq!(inner.ran(), stayed.zip(turns).collect::<Vec<_>>());
        assert_eq!(tokens(&limiter, &SLOW), 0.0);
    }
}

/// The poll has no task to wake, as in a `select!` that has taken another branch.
#[tokio::test(start_paused = true)]
async fn requests_dropped_after_a_poll_give_back_their_slots() {
    let limiter = paused();
    let (_, service) = service(&limiter);
    let mut calls: Vec<_> = (0..3).map(|number| call(&service, request(number))).collect();
    calls.iter_mut().for_each(pend);
    for left in [-2.0, -1.0, 0.0] {
        drop(calls.remove(0));
        assert_eq!(tokens(&limiter, &SLOW), left);
    }
}

/// A request is in the queue from the moment its slot is reserved.
#[tokio::test(start_paused = true)]
async fn requests_dropped_before_the_first_poll_give_back_their_slots() {
    let limiter = paused();
    let (_, service) = service(&limiter);
    let mut calls: Vec<_> = (0..3).map(|number| call(&service, request(number))).collect();
    for left in [-2.0, -1.0, 0.0] {
        drop(calls.remove(0));
        assert_eq!(tokens(&limiter, &SLOW), left);
    }
    assert_eq!(lines(&limiter), 0, "no queue is left");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_held_moves_forward_and_is_not_overtaken() {
    let limiter = paused();
    let (inner, service) = service(&limiter);
    let waits = send(&service, request(1)).await;
    let gone = send(&service, request(2)).await;
    let held = reserve(&limiter, &SLOW, 1);
    assert_eq!(tokens(&limiter, &SLOW), -3.0);
    gone.abort();
    settled().await;
    assert_eq!(tokens(&limiter, &SLOW), -2.0);
    let next = send(&service, request(3)).await;
    assert_eq!(tokens(&limiter, &SLOW), -3.0);
    for answer in [waits, next] {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(inner.ran(), [(1, SECOND), (3, SECOND * 3)]);
    drop(held);
    assert_eq!(tokens(&limiter, &SLOW), 1.0, "it was granted, and did not run");
}

#[tokio::test(start_paused = true)]
async fn the_waiters_behind_move_forward_in_their_order_whatever_they_cost() {
    let limiter = paused();
    let (inner, service) = service(&limiter);
    let mut answers = Vec::new();
    for (number, tokens) in [(1, 2), (2, 3), (3, 1), (4, 2)] {
        answers.push(send(&service, costing(number, tokens)).await);
    }
    assert_eq!(tokens(&limiter, &SLOW), -8.0);
    answers.remove(0).abort();
    settled().await;
    assert_eq!(tokens(&limiter, &SLOW), -6.0);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(inner.ran(), [(2, SECOND * 3), (3, SECOND * 4), (4, SECOND * 6)]);
}

/// An inner service that is ready when the test says so, for its callers in their order.
#[derive(Clone)]
struct Moody {
    mood: Arc<Mutex<Mood>>,
    inner: Recorder,
}

#[derive(Default)]
struct Mood {
    busy: bool,
    asked: Vec<Waker>,
}

impl Moody {
    fn new() -> Self {
        Self { mood: Arc::default(), inner: Recorder::new() }
    }

    fn busy(&self, busy: bool) {
        let mut mood = self.mood.lock().unwrap();
        mood.busy = busy;
        mood.asked.drain(..).for_each(Waker::wake);
    }
}

impl Service<Request<u64>> for Moody {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Running<()>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let mut mood = self.mood.lock().unwrap();
        if !mood.busy {
            return Poll::Ready(Ok(()));
        }
        mood.asked.push(cx.waker().clone());
        Poll::Pending
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        self.inner.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_the_inner_service_is_ready_passes_its_tokens_on() {
    for others in 0..3 {
        let limiter = paused();
        let inner = Moody::new();
        let service = limiter.layer(&SLOW).queue(HOUR).layer(inner.clone());
        let gone = send(&service, request(0)).await;
        let mut answers = Vec::new();
        for number in 1..=others {
            answers.push(send(&service, request(number)).await);
        }
        inner.busy(true);
        tokio::time::sleep(ms(1_500)).await;
        let owed = -f64::from(u32::try_from(others).unwrap());
        assert_eq!(tokens(&limiter, &SLOW), owed + 0.5);
        gone.abort();
        settled().await;
        // Without other waiters, the bucket holds no more than one.
        let left = if others == 0 { 1.0 } else { owed + 1.5 };
        assert_eq!(tokens(&limiter, &SLOW), left);
        inner.busy(false);
        for answer in answers {
            assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
        }
        let turns = (1..=others).map(|turn| (turn, ms(1_000 * turn).max(ms(1_500))));
        assert_eq!(inner.inner.ran(), turns.collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_delays_only_its_own_requests() {
    let limiter = paused();
    let inner = Moody::new();
    let service = limiter.layer(&SLOW).queue(HOUR).layer(inner.clone());
    let mut answers = Vec::new();
    for number in 0..4 {
        answers.push(send(&service, request(number)).await);
    }
    inner.busy(true);
    tokio::time::sleep(ms(2_500)).await;
    assert_eq!(inner.inner.ran(), []);
    inner.busy(false);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    let ran = [(0, ms(2_500)), (1, ms(2_500)), (2, ms(3_000)), (3, ms(4_000))];
    assert_eq!(inner.inner.ran(), ran);
}

/// The turn of the waiter has come, but its future is not polled.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_delays_no_other() {
    let limiter = paused();
    let (inner, service) = service(&limiter);
    let mut idle = call(&service, request(1));
    pend(&mut idle);
    let mut answers = Vec::new();
    for number in 2..=4 {
        answers.push(send(&service, request(number)).await);
    }
    for answer in answers.drain(..2) {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(tokens(&limiter, &SLOW), -1.0);
    drop(idle);
    assert_eq!(tokens(&limiter, &SLOW), 0.0, "the last waiter has its token");
    assert_eq!(answers.remove(0).await.unwrap().status(), StatusCode::OK);
    assert_eq!(inner.ran(), [(2, SECOND * 2), (3, SECOND * 3), (4, SECOND * 3)]);
    assert_eq!(tokens(&limiter, &SLOW), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_the_inner_service_runs_stays_spent() {
    let limiter = paused();
    let inner = Recorder::new().takes(MINUTE);
    let service = limiter.layer(&SLOW).queue(HOUR).settle().layer(inner.clone());
    let gone = send(&service, request(1)).await;
    let next = send(&service, request(2)).await;
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(inner.ran(), [(1, SECOND)]);
    assert_eq!(tokens(&limiter, &SLOW), -0.5);
    gone.abort();
    settled().await;
    assert_eq!(tokens(&limiter, &SLOW), -0.5);
    tokio::time::sleep(SECOND).await;
    assert_eq!(inner.ran(), [(1, SECOND), (2, SECOND * 2)]);
    assert_eq!(tokens(&limiter, &SLOW), 0.5);
    next.abort();
    settled().await;
    assert_eq!(tokens(&limiter, &SLOW), 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_completed_although_its_future_is_dropped() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(10, MINUTE));
    for (actual, left) in [(2, 8.0), (30, -20.0)] {
        let (store, limiter, memory) = Late::new();
        let at_work = Arc::new(tokio::sync::Notify::new());
        let done = Arc::clone(&at_work);
        let inner = service_fn(move |_: Request<u64>| {
            let done = Arc::clone(&done);
            async move {
                done.notified().await;
                let mut response = Response::new(());
                response.extensions_mut().insert(ActualCost::new(actual));
                Ok::<_, Infallible>(response)
            }
        });
        let service = limiter.layer(&LLM).cost(5).settle().layer(inner);
        let answer = tokio::spawn(service.oneshot(request(0)));
        settled().await;
        let held = store.close();
        at_work.notify_one();
        // The response does not wait for the store, and its future is dropped before the store has
        // settled.
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
        settled().await;
        assert_eq!(tokens(&memory, &LLM), 5.0);
        held.let_go();
        settled().await;
        assert_eq!(tokens(&memory, &LLM), left);
    }
}

/// What happened to one request.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    came: Duration,
    ran: Option<Duration>,
    left: Option<Duration>,
}

const REQUESTS: u64 = 300;

/// Requests that come and go at random. Returns what happened to each, and what ran when.
async fn storm(limit: Limit, seed: u64, costs: u64) -> (Vec<Fate>, Vec<(Timestamp, u64)>) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let clock = TokioClock::new();
    let start = Instant::now();
    let fates = Arc::new(Mutex::new(vec![Fate::default(); usize::try_from(REQUESTS).unwrap()]));
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (fate, log) = (Arc::clone(&fates), Arc::clone(&ran));
    let inner = service_fn(move |request: Request<u64>| {
        let tokens = request.extensions().get::<Cost>().unwrap().0;
        log.lock().unwrap().push((clock.now(), tokens));
        let ran = &mut fate.lock().unwrap()[usize::try_from(request.into_body()).unwrap()].ran;
        assert!(ran.replace(start.elapsed()).is_none(), "it ran before");
        async {
            tokio::time::sleep(ms(5)).await;
            Ok::<_, Infallible>(Response::new(()))
        }
    });
    let service = paused().layer(limit).cost_with(cost).queue(HOUR).layer(inner);
    let mut clients = Vec::new();
    for number in 0..REQUESTS {
        let came = ms(dice.below(1_500));
        let stays = (dice.below(10) < 3).then(|| ms(dice.below(1_000)));
        let request = costing(number, 1 + dice.below(costs));
        let (service, fates) = (service.clone(), Arc::clone(&fates));
        clients.push(tokio::spawn(async move {
            let index = usize::try_from(number).unwrap();
            tokio::time::sleep(came).await;
            fates.lock().unwrap()[index].came = start.elapsed();
            let answer = tokio::spawn(service.oneshot(request));
            if let Some(stays) = stays {
                tokio::time::sleep(stays).await;
                answer.abort();
                let _ = answer.await;
                let fate = &mut fates.lock().unwrap()[index];
                fate.left = fate.ran.is_none().then(|| start.elapsed());
            } else {
                assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    let fates = fates.lock().unwrap().clone();
    assert!(fates.iter().all(|fate| fate.ran.is_some() != fate.left.is_some()));
    let ran = ran.lock().unwrap().clone();
    (fates, ran)
}

fn kinds() -> [Limit; 3] {
    let bucket = Quota::token_bucket(100, SECOND);
    let window = Quota::fixed_window(20, ms(200)).start(TokioClock::new().now());
    [
        Limit::new("bucket", bucket.capacity(0)),
        Limit::new("saving", bucket.capacity(7)),
        Limit::new("window", window.capacity(0)),
    ]
}

#[tokio::test(start_paused = true)]
async fn aborted_requests_let_no_more_run_than_the_bound() {
    for seed in seeds(3) {
        for costs in [1, 4] {
            for limit in kinds() {
                let (_, ran) = storm(limit.clone(), seed, costs).await;
                let violation = check_history(limit.quota(), &ran).unwrap();
                assert_eq!(violation, None, "seed {seed}, costs {costs}, {limit:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn aborted_requests_leave_nearly_all_allowed_tokens_to_the_others() {
    for seed in seeds(3) {
        for limit in kinds() {
            let (fates, _) = storm(limit.clone(), seed, 1).await;
            let gone = |fate: &Fate| fate.ran.or(fate.left).unwrap();
            let waits = |fate: &Fate, at| fate.came < at && at <= gone(fate);
            let waiting = |at| fates.iter().filter(|fate| waits(fate, at)).count();
            let end = fates.iter().map(gone).max().unwrap();
            let instants = (0..).map(ms).take_while(|&at| at <= end);
            let allowed = if limit.name() == "window" {
                instants.step_by(200).map(|at| waiting(at).min(20)).sum()
            } else {
                // One every 10 ms.
                instants.filter(|&at| fates.iter().any(|fate| waits(fate, at))).count() / 10
            };
            let served = fates.iter().filter(|fate| fate.ran.is_some_and(|ran| ran > fate.came));
            let served = served.count();
            assert!(allowed > 150, "seed {seed}: {allowed} in {limit:?}");
            let enough = served * 100 >= allowed * 95;
            assert!(enough, "seed {seed}: {served} of {allowed} ran in {limit:?}");
        }
    }
}
