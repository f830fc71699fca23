//! Requests that stay in line although their turn is told for too late: tokens may come back.
//!
//! Time is the runtime's and stands still, so instants are exact whatever the machine does.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::{Extension, Router, routing::post};
use http::{HeaderMap, Method, Request, Response};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::algebra::check_history_with_returns;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::clock::{Clock, ManualClock, TokioClock};
use tollgate::key::Head;
use tollgate::middleware::{ActualCost, Queue, ResponseBody};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitLayer, RateLimiter, Rule, SECOND, Timestamp};
use tollgate_testing::START;
use tollgate_testing::cases::{seeds, times};
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, lines, ms, paused, settled, tokens};
use tollgate_testing::shared::Shared;
use tollgate_testing::web;
use tower::{Layer, Service, ServiceExt, service_fn};

/// One a second, and ten saved up.
static TEN: Limit = Limit::new("ten", Quota::token_bucket(1, SECOND).capacity(10));

/// Both kinds of queue: in lines of the memory store, and by slots of a store that others use.
fn stores() -> [RateLimiter; 2] {
    [paused(), Shared::new().limiter()]
}

/// What a request is estimated at, what it really costs, and how long it takes.
#[derive(Clone, Copy, Debug)]
struct Work {
    estimate: u64,
    cost: u64,
    takes: Duration,
}

fn estimate(head: &Head<'_>) -> u64 {
    head.extensions().get::<Work>().map_or(1, |work| work.estimate)
}

fn work(estimate: u64, cost: u64, takes: Duration) -> Request<u64> {
    let mut request = Request::new(0);
    request.extensions_mut().insert(Work { estimate, cost, takes });
    request
}

/// Costs what it was estimated at, and takes no time.
fn costing(tokens: u64) -> Request<u64> {
    work(tokens, tokens, Duration::ZERO)
}

/// The status of a response, its `Retry-After`, and when it came.
type Told = (u16, Option<String>, Duration);

/// Sends a request now.
async fn ask<N>(layer: &RateLimitLayer<N>, request: Request<u64>) -> JoinHandle<Told> {
    let service = layer.layer(service_fn(async |request: Request<u64>| {
        let mut response = Response::new(());
        if let Some(work) = request.extensions().get::<Work>() {
            sleep(work.takes).await;
            response.extensions_mut().insert(ActualCost::new(work.cost));
        }
        Ok::<_, Infallible>(response)
    }));
    answer(service, request).await
}

async fn answer<S>(service: S, request: Request<u64>) -> JoinHandle<Told>
where
    S: Service<Request<u64>, Response = Response<ResponseBody<()>>, Error = Infallible>,
    S::Future: Send + 'static,
{
    let (start, mut service) = (Instant::now(), service);
    let call = service.ready().await.unwrap().call(request);
    let answer = tokio::spawn(async move {
        let response = call.await.unwrap();
        let after = response.headers().get("retry-after");
        let after = after.map(|after| after.to_str().unwrap().to_owned());
        (response.status().as_u16(), after, start.elapsed())
    });
    // Then the request is waiting when this function returns.
    tokio::task::yield_now().await;
    answer
}

/// A layer whose requests stay for so long.
fn stays_for(limiter: &RateLimiter, time: Duration) -> RateLimitLayer {
    limiter.layer(&TEN).cost_with(estimate).queue(Queue::new(time).stay())
}

fn refused(after: &str, when: Duration) -> Told {
    (429, Some(after.to_owned()), when)
}

fn ran(when: Duration) -> Told {
    (200, None, when)
}

#[tokio::test(start_paused = true)]
async fn a_request_runs_as_soon_as_the_work_before_it_turns_out_to_cost_less() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(40_000, MINUTE));
    let queue = Queue::new(30 * SECOND);
    for early in [false, true] {
        for limiter in stores() {
            let queue = if early { queue.refuse_early() } else { queue };
            let layer = limiter.layer(&LLM).cost_with(estimate).queue(queue).settle();
            let long = ask(&layer, work(39_000, 100, ms(400))).await;
            let next = ask(&layer, costing(30_000)).await;
            assert_eq!(long.await.unwrap(), ran(ms(400)));
            let told = if early { refused("44", ms(0)) } else { ran(ms(400)) };
            assert_eq!(next.await.unwrap(), told);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_stays_in_vain_is_refused_when_its_time_is_up() {
    for (limiter, without) in stores().into_iter().zip(stores()) {
        for limiter in [&limiter, &without] {
            drop(limiter.limit(&TEN).cost(10).await.unwrap());
        }
        let layer = stays_for(&limiter, 3 * SECOND);
        let vain = ask(&layer, costing(8)).await;
        assert_eq!(tokens(&limiter, &TEN), -8.0);
        // Three of the eight tokens are there by then.
        assert_eq!(vain.await.unwrap(), refused("5", 3 * SECOND));
        assert_eq!(tokens(&limiter, &TEN), tokens(&without, &TEN));
        assert_eq!((limiter.peek(&TEN).waiting(), lines(&limiter)), (0, 0));
    }
}

/// On a shared store, they do so if they cost the same.
#[tokio::test(start_paused = true)]
async fn the_waiters_behind_one_that_gives_up_move_forward() {
    for limiter in stores() {
        drop(limiter.limit(&TEN).cost(10).await.unwrap());
        let layer = stays_for(&limiter, 5 * SECOND);
        let vain = ask(&layer, costing(6)).await;
        sleep(2 * SECOND).await;
        let behind = ask(&layer, costing(6)).await;
        // Beside the request behind it, six more are there after another seven seconds.
        assert_eq!(vain.await.unwrap(), refused("7", 5 * SECOND));
        // It was told ten seconds, and has the turn at six.
        assert_eq!(behind.await.unwrap(), ran(4 * SECOND));
        assert_eq!(tokens(&limiter, &TEN), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_at_the_very_end_of_the_time_is_used() {
    for limiter in stores() {
        drop(limiter.limit(&TEN).cost(10).await.unwrap());
        let layer = stays_for(&limiter, 3 * SECOND);
        let gone = ask(&layer, costing(3)).await;
        let last = ask(&layer, costing(3)).await;
        sleep(SECOND).await;
        gone.abort();
        assert_eq!(last.await.unwrap(), ran(3 * SECOND));
        assert_eq!(tokens(&limiter, &TEN), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_while_it_stays_gives_all_back() {
    for limiter in stores() {
        drop(limiter.limit(&TEN).cost(10).await.unwrap());
        let layer = limiter.layer(&TEN).cost_with(estimate);
        let layer = layer.queue(Queue::new(3 * SECOND).stay().max_waiters(1));
        let gone = ask(&layer, costing(8)).await;
        let full = ask(&layer, costing(8)).await;
        // Behind the one that waits, and so 16 tokens.
        assert_eq!(full.await.unwrap(), (503, Some("16".to_owned()), ms(0)));
        sleep(SECOND).await;
        gone.abort();
        settled().await;
        assert_eq!((tokens(&limiter, &TEN), lines(&limiter)), (1.0, 0));
        // Its place is free, and becomes so again when the time of the next is up.
        for _ in 0..2 {
            let next = ask(&layer, costing(10)).await;
            let told = next.await.unwrap();
            assert_eq!((told.0, told.2), (429, 3 * SECOND));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_stay_of_requests_whose_turn_is_too_late() {
    for limiter in stores() {
        drop(limiter.limit(&TEN).cost(10).await.unwrap());
        let layer = stays_for(&limiter, 6 * SECOND);
        let stays = ask(&layer, costing(8)).await;
        sleep(SECOND).await;
        limiter.drain(4 * SECOND);
        assert_eq!(stays.await.unwrap(), (503, Some("1".to_owned()), SECOND));
        assert_eq!(tokens(&limiter, &TEN), 1.0);
        // One that comes now is told at once.
        let late = ask(&layer, costing(8)).await;
        assert_eq!(late.await.unwrap(), (503, Some("7".to_owned()), ms(0)));
    }
}

/// The drain would let it have its turn, and it may not wait for so long.
#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_up_during_a_drain_is_not_at_fault() {
    for limiter in stores() {
        drop(limiter.limit(&TEN).cost(10).await.unwrap());
        let layer = stays_for(&limiter, 3 * SECOND);
        let stays = ask(&layer, costing(8)).await;
        limiter.drain(MINUTE);
        assert_eq!(stays.await.unwrap(), (503, Some("1".to_owned()), 3 * SECOND));
        assert_eq!(tokens(&limiter, &TEN), 3.0);
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_limits_each_gets_back_what_it_gave() {
    static FAST: Limit = Limit::new("fast", Quota::token_bucket(2, SECOND).capacity(10));
    for limiter in stores() {
        drop(limiter.limit(&TEN).cost(10).and(&FAST).cost(10).await.unwrap());
        let rules = [&TEN, &FAST].map(|limit| Rule::new(limit).cost_with(estimate));
        let [ten, fast] = rules;
        let layer = limiter.layer(ten).and(fast).queue(Queue::new(4 * SECOND).stay());
        // The fast one has its six tokens after three seconds.
        let vain = ask(&layer, costing(6)).await;
        sleep(3 * SECOND + ms(500)).await;
        assert_eq!(vain.await.unwrap(), refused("2", 4 * SECOND));
        assert_eq!((tokens(&limiter, &TEN), tokens(&limiter, &FAST)), (4.0, 8.0));
        assert_eq!(lines(&limiter), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_in_time_and_what_the_line_cannot_hold_is_refused_at_once() {
    static BOUNDED: Limit =
        Limit::new("bounded", Quota::token_bucket(1, SECOND).capacity(10).max_reserved(12));
    for limiter in stores() {
        let layer = limiter.layer(&BOUNDED).cost_with(estimate);
        let layer = layer.queue(Queue::new(3 * SECOND).stay());
        // A full bucket has 13 tokens after three seconds.
        assert_eq!(ask(&layer, costing(14)).await.await.unwrap().0, 413);
        drop(limiter.limit(&BOUNDED).cost(10).await.unwrap());
        let stays = ask(&layer, costing(8)).await;
        assert_eq!(ask(&layer, costing(5)).await.await.unwrap(), refused("13", ms(0)));
        assert_eq!(stays.await.unwrap(), refused("5", 3 * SECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn layers_that_can_give_tokens_back_let_requests_stay() {
    type With = fn(RateLimitLayer) -> RateLimitLayer;
    let cases: [(&str, bool, With); 8] = [
        ("nothing", false, |layer| layer),
        ("settle", true, |layer| layer.settle()),
        ("refund_dropped", true, |layer| layer.refund_dropped()),
        ("expose", true, |layer| layer.expose()),
        ("refund_if", true, |layer| layer.refund_if(|response| response.is_success())),
        ("reset_if", true, |layer| layer.reset_if(|response| response.is_success())),
        ("stay", true, |layer| layer.queue(Queue::new(3 * SECOND).stay())),
        ("refuse_early", false, |layer| {
            layer.queue(Queue::new(3 * SECOND).refuse_early()).settle()
        }),
    ];
    for (name, stays, with) in cases {
        let limiter = paused();
        drop(limiter.limit(&TEN).cost(10).await.unwrap());
        let layer = with(limiter.layer(&TEN).cost_with(estimate).queue(3 * SECOND));
        let (_, _, when) = ask(&layer, costing(8)).await.await.unwrap();
        assert_eq!(when, if stays { 3 * SECOND } else { ms(0) }, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_jitter_of_a_turn_ends_with_the_time() {
    for limiter in stores() {
        let limiter = limiter.seed(1);
        let permit = limiter.limit(&TEN).cost(10).await.unwrap().into_owned();
        let layer = stays_for(&limiter, 3 * SECOND).jitter(HOUR);
        let stays = ask(&layer, costing(8)).await;
        sleep(SECOND).await;
        permit.settle(0).await.unwrap();
        assert_eq!(stays.await.unwrap(), ran(3 * SECOND));
        assert_eq!(tokens(&limiter, &TEN), 5.0);
    }
}

/// The store is asked when the request should come back, and answers later.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_late_says_when_to_come_back() {
    let (store, limiter, memory) = Late::new();
    drop(limiter.limit(&TEN).cost(10).await.unwrap());
    let layer = stays_for(&limiter, 3 * SECOND);
    let vain = ask(&layer, costing(8)).await;
    sleep(2 * SECOND).await;
    let held = store.close();
    sleep(2 * SECOND).await;
    assert!(!vain.is_finished() && limiter.peek(&TEN).waiting() == 0);
    store.open();
    held.let_go();
    // The store looked before it got the tokens back, which this one does when its gate opens.
    let (status, _, when) = vain.await.unwrap();
    assert_eq!((status, when), (429, 4 * SECOND));
    settled().await;
    assert_eq!(tokens(&memory, &TEN), 4.0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_when_the_time_is_up_is_told_as_for_a_new_request() {
    #[derive(Debug)]
    struct Fails(Shared, AtomicBool);

    impl Backend for Fails {
        fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
            match self.1.load(Ordering::Relaxed) {
                true => Answer::Ready(Err(BackendError::unavailable("store", "away"))),
                false => self.0.apply(charges),
            }
        }

        fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
            self.0.adjust(adjustments)
        }

        fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
            self.0.reset(ids)
        }
    }

    let store = Arc::new(Fails(Shared::new(), AtomicBool::new(false)));
    let limiter = RateLimiter::new(Arc::clone(&store));
    drop(limiter.limit(&TEN).cost(10).await.unwrap());
    let vain = ask(&stays_for(&limiter, 3 * SECOND), costing(8)).await;
    store.1.store(true, Ordering::Relaxed);
    assert_eq!(vain.await.unwrap(), (503, Some("1".to_owned()), 3 * SECOND));
    store.1.store(false, Ordering::Relaxed);
    assert_eq!(tokens(&limiter, &TEN), 3.0);
}

/// What ran with its cost, what came back, and how long each request waited.
#[derive(Clone, Default)]
struct Record {
    ran: Arc<Mutex<Vec<(Timestamp, u64)>>>,
    returned: Arc<Mutex<Vec<(Timestamp, u64)>>>,
}

#[tokio::test(start_paused = true)]
async fn histories_of_requests_that_stay_are_within_the_bound() {
    histories(true).await;
}

/// Without settlements, of which a shared store bounds less.
#[tokio::test(start_paused = true)]
async fn histories_of_requests_that_stay_on_a_shared_store_are_within_the_bound() {
    histories(false).await;
}

/// Requests of random costs, some of whose clients go away. In memory, they are settled below what they
/// were estimated at.
async fn histories(settles: bool) {
    const WAITS: [Duration; 4] = [ms(1), ms(1_000), ms(3_000), ms(10_000)];
    // A token in whole milliseconds, as timers have them: work that ran late by a part of one would look as
    // if the next was early.
    const RATES: [u64; 4] = [1, 2, 4, 5];
    const PAUSES: [Duration; 6] = [ms(0), ms(0), ms(100), ms(200), ms(500), ms(3_000)];
    let (mut in_vain, mut sooner) = (0, 0);
    for seed in seeds(40) {
        let mut dice = Dice(seed);
        let (rate, capacity) = (RATES[dice.nth(&RATES)], dice.below(13));
        let quota = match dice.below(2) {
            0 => Quota::token_bucket(rate, SECOND).capacity(capacity),
            _ => Quota::fixed_window(rate, SECOND).capacity(capacity),
        };
        let limit = Limit::new("random", quota);
        let max_wait = WAITS[dice.nth(&WAITS)];
        let clock = TokioClock::new();
        let limiter = match settles {
            true => RateLimiter::new(Memory::new().clock(clock)),
            false => Shared::new().limiter(),
        };
        let record = Record::default();
        let log = record.clone();
        let service = service_fn(move |request: Request<u64>| {
            let (log, work) = (log.clone(), *request.extensions().get::<Work>().unwrap());
            log.ran.lock().unwrap().push((clock.now(), work.estimate));
            async move {
                sleep(work.takes).await;
                let mut response = Response::new(());
                response.extensions_mut().insert(ActualCost::new(work.cost));
                // It is settled as soon as there is a response.
                log.returned.lock().unwrap().push((clock.now(), work.estimate - work.cost));
                Ok::<_, Infallible>(response)
            }
        });
        let layer = limiter.layer(&limit).cost_with(estimate);
        let layer = layer.queue(Queue::new(max_wait).stay());
        let service = if settles { layer.settle() } else { layer }.layer(service);
        let mut answers = Vec::new();
        for _ in 0..60 {
            sleep(PAUSES[dice.nth(&PAUSES)]).await;
            let estimate = 1 + dice.below(8);
            let takes = ms(100) * u32::try_from(dice.below(30)).unwrap();
            let cost = if settles { dice.below(estimate + 1) } else { estimate };
            let request = work(estimate, cost, takes);
            let answer = answer(service.clone(), request).await;
            match dice.below(10) {
                // Its client goes away. If it runs already, nothing comes back.
                0 => {
                    answers.iter().rev().take(1).for_each(|(answer, _): &(JoinHandle<Told>, _)| {
                        answer.abort();
                    })
                }
                _ => answers.push((answer, takes)),
            }
        }
        for (answer, takes) in answers {
            let Ok((status, _, when)) = answer.await else { continue };
            match status {
                200 => {
                    let waited = when - takes;
                    assert!(waited <= max_wait, "seed {seed}: {waited:?} of {max_wait:?}");
                    sooner += u32::from(waited > ms(0));
                }
                429 => {
                    assert_eq!(when, max_wait, "seed {seed}");
                    in_vain += 1;
                }
                413 => assert_eq!(when, ms(0), "seed {seed}"),
                other => panic!("seed {seed}: {other}"),
            }
        }
        sleep(MINUTE).await;
        assert_eq!(lines(&limiter), 0, "seed {seed}");
        assert_eq!(
            tokens(&limiter, &limit),
            f64::from(u32::try_from(capacity).unwrap()),
            "seed {seed}"
        );
        let (ran, returned) = (record.ran.lock().unwrap(), record.returned.lock().unwrap());
        let violation = check_history_with_returns(&quota, &ran, &returned).unwrap();
        assert_eq!(violation, None, "seed {seed}, {quota}");
    }
    let least = times(100, 50);
    assert!(u64::from(in_vain.min(sooner)) > least, "{in_vain} in vain, {sooner} after a wait");
}

/// Such a client was refused, and told to come back in 44 s.
#[tokio::test]
async fn a_client_is_served_when_the_stream_before_it_turns_out_to_cost_less() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(40_000, MINUTE));
    let limiter = tollgate_testing::limiter(&ManualClock::new(START));
    let over = Arc::new(Notify::new());
    let ends = Arc::clone(&over);
    let chat = async move |fields: HeaderMap| {
        if fields.contains_key("x-stream") {
            ends.notified().await;
        }
        (Extension(ActualCost::new(100)), "hello")
    };
    let cost = |head: &Head<'_>| head.headers()["x-cost"].to_str().unwrap().parse().unwrap();
    let layer = limiter.layer(&LLM).cost_with(cost).queue(MINUTE).settle();
    let server = web::serve(Router::new().route("/", post(chat)).layer(layer)).await;
    let ask = |fields: &'static [(&'static str, &'static str)]| {
        tokio::spawn(async move { web::send(server, Method::POST, "/", fields).await })
    };
    // By what is left, since the clock stands still.
    let until = async |left: f64| {
        while tokens(&limiter, &LLM) != left {
            yield_now().await;
        }
    };
    let stream = ask(&[("x-cost", "39000"), ("x-stream", "yes")]);
    until(1_000.0).await;
    let waits = ask(&[("x-cost", "30000")]);
    until(-29_000.0).await;
    assert!(!waits.is_finished());
    over.notify_one();
    assert_eq!(stream.await.unwrap().status, 200);
    assert_eq!(waits.await.unwrap().status, 200);
    assert_eq!(tokens(&limiter, &LLM), 39_800.0);
}

/// Work that was admitted by larger numbers ends by the smaller ones.
#[tokio::test(start_paused = true)]
async fn work_of_larger_numbers_makes_place_for_waiters_of_smaller_ones() {
    static OPEN: Limit = Limit::new("open", Quota::in_flight(3).lost_after(HOUR));
    for limiter in stores() {
        let first = limiter.limit(&OPEN).await.unwrap().in_flight();
        limiter.replace(&OPEN, Quota::in_flight(1).lost_after(HOUR)).unwrap();
        let mut waiters = Vec::new();
        for _ in 0..2 {
            let turn = limiter.limit(&OPEN).reserve().await.unwrap();
            waiters.push(tokio::spawn(async move { drop(turn.ready().await.in_flight()) }));
            settled().await;
        }
        drop(first);
        settled().await;
        assert!(waiters.iter().all(JoinHandle::is_finished));
        assert_eq!(limiter.peek(&OPEN).await.unwrap().remaining(), 1);
    }
}
