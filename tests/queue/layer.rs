//! The queue of the layer: when requests run, which are refused, and what clients are told.
//!
//! Time is the runtime's and stands still, so instants are exact whatever the machine does.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tollgate::backend::Memory;
use tollgate::clock::{Clock, TokioClock};
use tollgate::key::{Extracted, Head, Key, header};
use tollgate::middleware::{ActualCost, Queue};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};
use tollgate_testing::queue::{Late, Recorder, Running, ms, paused, send, settled, tokens};
use tollgate_testing::shared::Shared;
use tollgate_testing::web;
use tower::{Layer, Service, ServiceExt, service_fn};

/// One token every 100 ms, and none in advance.
static TENTHS: Limit = Limit::new("tenths", Quota::token_bucket(10, SECOND).capacity(0));

#[derive(Clone, Copy)]
struct Cost(u64);

fn cost(head: &Head<'_>) -> u64 {
    head.extensions().get::<Cost>().map_or(1, |cost| cost.0)
}

fn request(number: u64) -> Request<u64> {
    Request::new(number)
}

fn costing(number: u64, tokens: u64) -> Request<u64> {
    let mut request = Request::new(number);
    request.extensions_mut().insert(Cost(tokens));
    request
}

fn by(user: &str) -> Request<u64> {
    Request::builder().header("x-user", user).body(0).unwrap()
}

fn field<'a, T>(response: &'a Response<T>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// Sends requests in any order to a limit that promises the nth of them its turn at `promised(n)`.
async fn each_runs_at_its_promised_instant(
    clock: TokioClock,
    limit: Limit,
    promised: impl Fn(u64) -> Duration,
) {
    const REQUESTS: u64 = 3_000;
    #[derive(Clone, Copy)]
    struct Number(u64);
    let admitted = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&admitted);
    let inner = Recorder::new();
    let limiter = RateLimiter::new(Memory::new().clock(clock));
    let layer = limiter.layer(limit).queue(Queue::new(HOUR).max_waiters(5_000));
    let layer = layer.cost_with(move |head| {
        log.lock().unwrap().push(head.extensions().get::<Number>().unwrap().0);
        1
    });
    let service = layer.layer(inner.clone());
    let mut answers = Vec::new();
    for number in 0..REQUESTS {
        let service = service.clone();
        let mut request = request(number);
        request.extensions_mut().insert(Number(number));
        answers.push(tokio::spawn(async move {
            for _ in 0..number * 7 % 5 {
                tokio::task::yield_now().await;
            }
            service.oneshot(request).await.unwrap().status()
        }));
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap(), StatusCode::OK);
    }
    let ran = inner.ran();
    let admitted = admitted.lock().unwrap().clone();
    assert_ne!(admitted, Vec::from_iter(0..REQUESTS), "the requests should not come in order");
    assert_eq!(ran.iter().map(|(number, _)| *number).collect::<Vec<_>>(), admitted);
    for ((number, at), nth) in ran.into_iter().zip(1..) {
        let promised = promised(nth);
        assert!(at >= promised, "{number} ran at {at:?}, too early for {promised:?}");
        assert!(at <= promised + ms(1), "{number} ran at {at:?}, too late for {promised:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_run_once_in_order_and_on_time() {
    let even = Limit::new("even", Quota::token_bucket(1_000, SECOND).capacity(0));
    each_runs_at_its_promised_instant(TokioClock::new(), even, ms).await;
    let odd = Limit::new("odd", Quota::token_bucket(700, SECOND).capacity(0));
    let nth = |nth: u64| Duration::from_micros((nth * 1_000_000).div_ceil(700));
    each_runs_at_its_promised_instant(TokioClock::new(), odd, nth).await;
}

/// The window begins by the clock of the store. A second `TokioClock` begins at a later time of the
/// system: a millisecond later, the first requests ran at 99 ms.
#[tokio::test(start_paused = true)]
async fn all_run_once_in_order_in_windows() {
    let clock = TokioClock::new();
    let quota = Quota::fixed_window(70, ms(100)).capacity(0);
    let window = Limit::new("window", quota.start(clock.now()));
    each_runs_at_its_promised_instant(clock, window, |nth| ms(nth.div_ceil(70) * 100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_refused_at_once() {
    let start = Instant::now();
    let slow = Limit::new("slow", Quota::token_bucket(6, MINUTE).capacity(0));
    let limiter = paused();
    let inner = Recorder::new();
    let service = limiter.layer(&slow).cost_with(cost).queue(SECOND * 20).layer(inner.clone());
    let first = send(&service, request(1)).await;
    let second = send(&service, request(2)).await;
    let refused = service.clone().oneshot(request(3)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&refused, "retry-after"), Some("30"));
    assert_eq!(field(&refused, "server-timing"), None);
    let never = service.clone().oneshot(costing(3, 4)).await.unwrap();
    assert_eq!((never.status().as_u16(), field(&never, "retry-after")), (413, None));
    assert_eq!(tokens(&limiter, &slow), -2.0);
    assert_eq!(start.elapsed(), Duration::ZERO);
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(inner.ran(), [(1, SECOND * 10), (2, SECOND * 20)]);
}

#[tokio::test(start_paused = true)]
async fn max_reserved_bounds_the_queue() {
    let quota = Quota::token_bucket(1, MINUTE).capacity(0).max_reserved(3);
    let limit = Limit::new("bounded", quota);
    let limiter = paused();
    let service = limiter.layer(&limit).cost_with(cost).queue(HOUR).layer(Recorder::new());
    let mut waiting = Vec::new();
    for number in 0..3 {
        waiting.push(send(&service, request(number)).await);
    }
    let refused = service.clone().oneshot(request(3)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&refused, "retry-after"), Some("240"));
    let never = service.clone().oneshot(costing(4, 4)).await.unwrap();
    assert_eq!((never.status().as_u16(), field(&never, "retry-after")), (413, None));
    assert_eq!(tokens(&limiter, &limit), -3.0);
    assert!(waiting.iter().all(|answer| !answer.is_finished()));
    tokio::time::sleep(MINUTE).await;
    let late = send(&service, request(5)).await;
    assert_eq!(late.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_the_queue_full_is_refused_and_takes_nothing() {
    static ONE: Limit = Limit::new("one", Quota::token_bucket(1, SECOND));
    let cases = [
        (Queue::new(HOUR), StatusCode::SERVICE_UNAVAILABLE),
        (Queue::new(HOUR).on_full(StatusCode::TOO_MANY_REQUESTS), StatusCode::TOO_MANY_REQUESTS),
    ];
    for (queue, status) in cases {
        let limiter = paused();
        let left = |user: &str| {
            tollgate_testing::at_once(limiter.peek(&ONE).key(user)).unwrap().tokens().to_f64()
        };
        let queue = queue.max_waiters(2).max_waiters_per_key(2);
        let layer = limiter.layer(&ONE).key(header("x-user")).queue(queue);
        let service = layer.layer(Recorder::new());
        let ask = async |user| service.clone().oneshot(by(user)).await.unwrap();
        assert_eq!(ask("alice").await.status(), StatusCode::OK);
        let first = send(&service, by("alice")).await;
        let second = send(&service, by("alice")).await;

        let too_many = ask("alice").await;
        assert_eq!(too_many.status(), status);
        assert_eq!(field(&too_many, "retry-after"), Some("3"));
        assert_eq!(left("alice"), -2.0);
        // A request that need not wait needs no place in the queue.
        let other = ask("bob").await;
        assert_eq!((other.status().as_u16(), field(&other, "server-timing")), (200, None));
        assert_eq!(ask("bob").await.status(), status, "all clones share the queue");
        assert_eq!(left("bob"), 0.0);

        // A place is free again when its waiter is dropped, and when it has run.
        second.abort();
        assert!(second.await.is_err());
        assert_eq!(left("alice"), -1.0);
        let third = send(&service, by("alice")).await;
        assert_eq!(ask("alice").await.status(), status);
        assert_eq!(first.await.unwrap().status(), StatusCode::OK);
        let fourth = send(&service, by("alice")).await;
        assert_eq!(ask("alice").await.status(), status);
        for answer in [third, fourth] {
            assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
        }
    }
}

/// An empty queue would refuse the request as well.
#[tokio::test(start_paused = true)]
async fn a_request_that_no_queue_could_hold_is_not_refused_because_the_queue_is_full() {
    static FEW: Limit = Limit::new("few", Quota::token_bucket(1, SECOND).max_reserved(3));
    for (max_wait, in_time) in [(SECOND * 2, 2), (HOUR, 3)] {
        let limiter = paused();
        let layer = limiter.layer(&FEW).cost_with(cost);
        let roomy = layer.clone().queue(max_wait).layer(Recorder::new());
        let full = layer.queue(Queue::new(max_wait).max_waiters(0)).layer(Recorder::new());
        let ask = async |tokens| full.clone().oneshot(costing(0, tokens)).await.unwrap().status();
        assert_eq!(roomy.oneshot(costing(0, 1)).await.unwrap().status(), StatusCode::OK);
        assert_eq!(ask(in_time).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(in_time + 1).await, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_places_lets_no_request_wait() {
    let queue = Queue::new(HOUR).max_waiters(0);
    let service = paused().layer(&TENTHS).queue(queue).layer(Recorder::new());
    let full = service.oneshot(request(0)).await.unwrap();
    assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&full, "retry-after"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn responses_say_how_long_the_request_waited() {
    let limit = Limit::new("a \"b\" \\", Quota::token_bucket(3, SECOND).capacity(1));
    let inner = service_fn(async |_: Request<u64>| {
        let response = Response::builder().header("server-timing", "db;dur=5");
        tokio::time::sleep(ms(400)).await;
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let service = paused().layer(limit).queue(HOUR).layer(inner);
    let mut answers = Vec::new();
    for number in 0..4 {
        answers.push(send(&service, request(number)).await);
    }
    let mut told = Vec::new();
    for answer in answers {
        let response = answer.await.unwrap();
        let timings = response.headers().get_all("server-timing").iter();
        told.push(timings.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>());
    }
    // Timers count whole milliseconds, so a turn after 333.334 ms is served after 334.
    let waited = |dur: &str| format!("queue;dur={dur};desc=\"a \\\"b\\\" \\\\\"");
    assert_eq!(told[0], ["db;dur=5"]);
    for (told, dur) in told[1..].iter().zip(["334.000", "667.000", "1000.000"]) {
        assert_eq!(*told, ["db;dur=5", &waited(dur)]);
    }
}

/// Like `tower::limit::ConcurrencyLimit` of one: `poll_ready` takes the permit.
struct OneAtATime {
    permits: Arc<Semaphore>,
    acquiring: Option<std::pin::Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
    permit: Option<OwnedSemaphorePermit>,
    inner: Recorder,
}

impl OneAtATime {
    fn new(inner: Recorder) -> Self {
        Self { permits: Arc::new(Semaphore::new(1)), acquiring: None, permit: None, inner }
    }
}

impl Clone for OneAtATime {
    fn clone(&self) -> Self {
        let (permits, inner) = (Arc::clone(&self.permits), self.inner.clone());
        Self { permits, acquiring: None, permit: None, inner }
    }
}

impl Service<Request<u64>> for OneAtATime {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Running<()>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.permit.is_none() {
            let permits = &self.permits;
            let acquiring = self.acquiring.get_or_insert_with(|| {
                let acquire = Arc::clone(permits).acquire_owned();
                Box::pin(async { acquire.await.unwrap() })
            });
            self.permit = Some(std::task::ready!(acquiring.as_mut().poll(cx)));
            self.acquiring = None;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        let permit = self.permit.take().expect("called without being made ready");
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(permit);
            answer
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_hold_the_inner_service() {
    let (_, late, _) = Late::new();
    for limiter in [paused(), late] {
        let inner = Recorder::new().takes(ms(10));
        // A request without a user is exempt.
        let layer = limiter.layer(&TENTHS).queue(HOUR);
        let layer = layer.key_with(|head| match head.headers().get("x-user") {
            Some(_) => Some(Extracted::Key(Key::GLOBAL)),
            None => Some(Extracted::Exempt),
        });
        let service = layer.layer(OneAtATime::new(inner.clone()));
        let mut answers = vec![send(&service, by("alice")).await];
        for number in 1..4 {
            answers.push(send(&service, request(number)).await);
        }
        settled().await;
        for answer in answers.drain(1..) {
            assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
        }
        assert_eq!(answers.remove(0).await.unwrap().status(), StatusCode::OK);
        let ran = [(1, ms(0)), (2, ms(10)), (3, ms(20)), (0, ms(100))];
        assert_eq!(inner.ran(), ran);
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_inner_service_serves_one_by_one_and_in_order() {
    let inner = Recorder::new().takes(ms(150));
    let service = paused().layer(&TENTHS).queue(HOUR).layer(OneAtATime::new(inner.clone()));
    let mut answers = Vec::new();
    for number in 0..20 {
        answers.push(send(&service, request(number)).await);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    let served: Vec<_> = (0..20).map(|number| (number, ms(100 + 150 * number))).collect();
    assert_eq!(inner.ran(), served);
}

/// Records when it is made ready, and fails to be from some time on.
#[derive(Clone)]
struct Fragile {
    start: Instant,
    breaks: Duration,
    asked: Arc<Mutex<Vec<Duration>>>,
    inner: Recorder,
}

#[derive(Debug, PartialEq)]
struct Broken;

impl Service<Request<u64>> for Fragile {
    type Response = Response<()>;
    type Error = Broken;
    type Future = Running<(), Broken>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let now = self.start.elapsed();
        self.asked.lock().unwrap().push(now);
        Poll::Ready(if now < self.breaks { Ok(()) } else { Err(Broken) })
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        let answer = self.inner.call(request);
        Box::pin(async { Ok(answer.await.unwrap()) })
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_made_ready_after_the_turn_and_its_error_comes_through() {
    let limit = Limit::new("tenth", Quota::token_bucket(10, SECOND).capacity(1).initial(0));
    let limiter = paused();
    let inner = Fragile {
        start: Instant::now(),
        breaks: ms(150),
        asked: Arc::default(),
        inner: Recorder::new(),
    };
    let service = limiter.layer(&limit).queue(HOUR).layer(inner.clone());
    let first = tokio::spawn(service.clone().oneshot(request(1)));
    let second = tokio::spawn(service.clone().oneshot(request(2)));
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(second.await.unwrap().unwrap_err(), Broken);
    assert_eq!(*inner.asked.lock().unwrap(), [ms(0), ms(0), ms(100), ms(200)]);
    assert_eq!(inner.inner.ran(), [(1, ms(100))]);
    assert_eq!(tokens(&limiter, &limit), 1.0, "the request that did not run gives its token back");
}

#[tokio::test(start_paused = true)]
async fn a_large_request_keeps_its_instant_in_a_storm_of_small_ones() {
    let inner = Recorder::new();
    let layer = paused().layer(&TENTHS).cost_with(cost).queue(HOUR);
    let service = layer.layer(inner.clone());
    let mut answers = Vec::new();
    // The requests ask for 20 tokens a second, and 10 come in.
    for number in 0..200 {
        if number == 100 {
            answers.push(send(&service, costing(1_000, 50)).await);
        }
        answers.push(send(&service, request(number)).await);
        tokio::time::sleep(ms(50)).await;
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    // The large request found a debt of 100 tokens since the start.
    let before = (0..100).map(|number| (number, ms(100 * (number + 1))));
    let after = (100..200).map(|number| (number, ms(100 * (number + 51))));
    let wanted: Vec<_> = before.chain([(1_000, SECOND * 15)]).chain(after).collect();
    assert_eq!(inner.ran(), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_settled_at_its_actual_cost() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(10, MINUTE));
    let inner = service_fn(async |request: Request<u64>| {
        let mut response = Response::new(());
        if *request.body() != 99 {
            response.extensions_mut().insert(ActualCost::new(*request.body()));
        }
        Ok::<_, Infallible>(response)
    });
    for (actual, left) in [(2, 8.0), (5, 5.0), (30, -20.0), (99, 5.0)] {
        let limiter = paused();
        let layer = limiter.layer(&LLM).cost(5);
        let settling = layer.clone().settle().layer(inner);
        assert!(settling.oneshot(request(actual)).await.is_ok());
        assert_eq!(tokens(&limiter, &LLM), left, "{actual}");
        limiter.reset(&LLM).await.unwrap();
        assert!(layer.layer(inner).oneshot(request(actual)).await.is_ok());
        assert_eq!(tokens(&limiter, &LLM), 5.0, "only `settle` reads the actual cost");
    }

    // Requests that have waited are settled as well.
    let start = Instant::now();
    let limiter = paused();
    let service = limiter.layer(&LLM).cost(10).queue(HOUR).settle().layer(inner);
    let mut answers = Vec::new();
    for actual in [4, 99, 12] {
        answers.push(send(&service, request(actual)).await);
    }
    assert_eq!(tokens(&limiter, &LLM), -14.0);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    // The first gave back six, so the others ran after 24 and 84 s.
    assert_eq!(start.elapsed(), SECOND * 84);
    assert_eq!(tokens(&limiter, &LLM), -2.0);
}

/// The response of a stream starts before its cost is known. Its meter may also be settled before
/// the response.
#[tokio::test(start_paused = true)]
async fn a_stream_is_settled_by_its_meter() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(100, HOUR));
    for first in [true, false] {
        let limiter = paused();
        let meters = Arc::new(Mutex::new(Vec::new()));
        let inner = service_fn(|_: Request<u64>| {
            let (cost, meter) = ActualCost::metered();
            let mut response = Response::new(());
            response.extensions_mut().insert(cost);
            if first {
                meter.settle(15);
            } else {
                meters.lock().unwrap().push(meter);
            }
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let service = limiter.layer(&LLM).cost(10).settle().layer(inner);
        for _ in 0..3 {
            let _response = service.clone().oneshot(request(0)).await.unwrap();
        }
        let left: Vec<_> = meters.lock().unwrap().drain(..).collect();
        assert_eq!(tokens(&limiter, &LLM), if first { 55.0 } else { 70.0 });
        let mut left = left.into_iter();
        if let (Some(less), Some(more)) = (left.next(), left.next()) {
            less.settle(2);
            more.settle(60);
            assert_eq!(tokens(&limiter, &LLM), 28.0);
            drop(left);
            assert_eq!(
                tokens(&limiter, &LLM),
                28.0,
                "a meter that is dropped unsettled gives nothing back"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn jitter_is_never_early_and_the_same_for_the_same_seed() {
    async fn run(seed: u64) -> Vec<(u64, Duration)> {
        let limiter = paused().seed(seed);
        let inner = Recorder::new();
        let layer = limiter.layer(&TENTHS).queue(HOUR).jitter(ms(250));
        let service = layer.layer(inner.clone());
        let mut answers = Vec::new();
        for number in 0..100 {
            answers.push(send(&service, request(number)).await);
        }
        for answer in answers {
            assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
        }
        inner.ran()
    }
    let ran = run(7).await;
    assert_eq!(ran.len(), 100);
    for (number, at) in &ran {
        let promised = ms(100 * (number + 1));
        let latest = promised + ms(250 + 1);
        assert!((promised..=latest).contains(at), "{number} ran at {at:?}");
    }
    let most = ran.iter().map(|(number, at)| *at - ms(100 * (number + 1))).max().unwrap();
    assert!(most > ms(200), "{most:?}");
    assert_eq!(run(7).await, ran);
    assert_ne!(run(8).await, ran);
}

/// The paused clock advances by itself while tasks wait only for sockets, unless another thread has
/// blocking work. This is such work, until it is dropped.
struct Standstill(#[expect(dead_code, reason = "dropped at the end")] std::sync::mpsc::Sender<()>);

impl Standstill {
    fn new() -> Self {
        let (held, ended) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || ended.recv());
        Self(held)
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_shuts_down_serves_waiters_that_are_due_in_time() {
    let _standstill = Standstill::new();
    let start = Instant::now();
    let limiter = paused();
    let route = get(async || "hello").layer(limiter.layer(&TENTHS).queue(HOUR));
    let app = Router::new().route("/", route);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let drained = limiter.clone();
    let server = axum::serve(listener, app.clone()).with_graceful_shutdown(async move {
        stopped.await.unwrap();
        drained.drain(ms(350));
    });
    let server = tokio::spawn(server.into_future());
    let mut replies = Vec::new();
    for waiting in 1..=6 {
        replies.push(tokio::spawn(web::get(address, "/")));
        while tokens(&limiter, &TENTHS) > -f64::from(waiting) {
            tokio::task::yield_now().await;
        }
    }
    settled().await;
    stop.send(()).unwrap();

    for reply in replies.split_off(3) {
        let reply = reply.await.unwrap();
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(reply.field("retry-after"), Some("1"));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(tokens(&limiter, &TENTHS), -3.0, "their slots are given up");
    let body = axum::body::Body::empty();
    let refused = app.oneshot(Request::get("/").body(body).unwrap()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&refused, "retry-after"), Some("1"));
    assert!(!server.is_finished());

    for (reply, turn) in replies.into_iter().zip(1..) {
        assert!(!reply.is_finished());
        tokio::time::advance(ms(100)).await;
        let reply = reply.await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "hello"));
        let told = format!("queue;dur={}.000;desc=\"tenths\"", 100 * turn);
        assert_eq!(reply.field("server-timing"), Some(told.as_str()));
    }
    server.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), ms(300), "the server returns when the last waiter is served");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

/// Its turn has come, and only the jitter keeps it waiting.
#[tokio::test(start_paused = true)]
async fn a_waiter_in_its_jitter_is_served_before_the_end() {
    let limiter = paused().seed(1);
    let inner = Recorder::new();
    let layer = limiter.layer(&TENTHS).queue(24 * HOUR).jitter(HOUR);
    let answer = send(&layer.layer(inner.clone()), request(1)).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(inner.ran(), []);
    limiter.drain(SECOND);
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    assert_eq!(inner.ran(), [(1, SECOND * 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_may_wait_for_the_rest_of_a_drain() {
    let limiter = paused();
    let inner = Recorder::new();
    let service = limiter.layer(&TENTHS).queue(HOUR).layer(inner.clone());
    limiter.drain(ms(250));
    let mut statuses = Vec::new();
    let answers = [send(&service, request(1)).await, send(&service, request(2)).await];
    // A second drain with a later end changes nothing.
    limiter.clone().drain(HOUR);
    statuses.push(service.clone().oneshot(request(3)).await.unwrap().status().as_u16());
    for answer in answers {
        statuses.push(answer.await.unwrap().status().as_u16());
    }
    statuses.push(service.clone().oneshot(request(4)).await.unwrap().status().as_u16());
    assert_eq!(statuses, [503, 200, 200, 503]);
    assert_eq!(inner.ran(), [(1, ms(100)), (2, ms(200))]);
}

// On a shared store, a former version counted a drained waiter twice: when it was drained, and when
// its request was dropped with the answer.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_drained_has_left_once() {
    for limiter in [paused(), Shared::new().limiter()] {
        let service = limiter.layer(&TENTHS).queue(HOUR).layer(Recorder::new());
        let mut answers = Vec::new();
        for number in 1..=3 {
            answers.push(send(&service, request(number)).await);
        }
        limiter.drain(ms(150));
        let mut statuses = Vec::new();
        for answer in answers.drain(1..) {
            statuses.push(answer.await.unwrap().status().as_u16());
        }
        assert_eq!(statuses, [503, 503]);
        assert_eq!(limiter.peek(&TENTHS).left_early(), 2);
    }
}
