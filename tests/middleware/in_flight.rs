//! Requests that are counted while they are in flight: each takes a token when it is admitted, and gives
//! it back once, however its response ends.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::limiter::{Decision, Outcome};
use tollgate::middleware::{Admission, Queue, RateLimit, ResponseBody};
use tollgate::{
    HOUR, Limit, MINUTE, Observer, OnRefusal, Quota, RateLimitExt, RateLimiter, Rule, SECOND,
};
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, ms, paused, settled};
use tollgate_testing::shared::Shared;
use tollgate_testing::web;
use tollgate_testing::{START, at_once, limiter, store};
use tower::{Layer, Service, ServiceExt};

static UPLOADS: Limit = Limit::new("uploads", Quota::in_flight(4));
static ONE: Limit = Limit::new("one", Quota::in_flight(1));
static LEASED: Limit = Limit::new("leased", Quota::in_flight(2).lost_after(HOUR));
static CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));

#[track_caller]
fn left(limiter: &RateLimiter, limit: &Limit) -> u64 {
    at_once(limiter.peek(limit)).unwrap().remaining()
}

fn here() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

/// How a handler is told to end; `None` panics.
type Answer = Option<Result<Response<Stream>, &'static str>>;

/// A service whose requests run until they are told how to end.
#[derive(Clone, Default)]
struct Handler {
    started: Arc<Mutex<Vec<oneshot::Sender<Answer>>>>,
    /// Panics while it is called.
    panics: bool,
}

impl Service<Request<()>> for Handler {
    type Response = Response<Stream>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Stream>, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(!self.panics, "the service panics in its call");
        let (answer, ends) = oneshot::channel();
        self.started.lock().unwrap().push(answer);
        Box::pin(async { ends.await.unwrap().expect("the handler panics") })
    }
}

/// A body with frames to come.
#[derive(Debug, Default)]
struct Stream {
    frames: Vec<Result<Frame<Bytes>, &'static str>>,
    /// Whether it ends after these.
    ends: bool,
}

impl Stream {
    fn of(frames: u8) -> Self {
        let frame = |_| Ok(Frame::data(Bytes::from_static(b"data")));
        Self { frames: (0..frames).map(frame).collect(), ends: true }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.frames.pop() {
            Some(frame) => Poll::Ready(Some(frame)),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

type Call = Pin<Box<<RateLimit<Handler> as Service<Request<()>>>::Future>>;

fn poll<F: Future + ?Sized>(call: &mut Pin<Box<F>>) -> Option<F::Output> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn frame<B: Body + Unpin>(body: &mut B) -> Poll<Option<bool>> {
    let polled = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    polled.map(|frame| frame.map(|frame| frame.is_ok()))
}

/// A request that was admitted and runs.
struct Running {
    call: Call,
    answer: oneshot::Sender<Answer>,
}

impl Running {
    /// `Err` with the response if it does not run.
    fn start(service: &RateLimit<Handler>) -> Result<Self, Box<Response<ResponseBody<Stream>>>> {
        Self::send(service, Request::new(()))
    }

    fn send(
        service: &RateLimit<Handler>,
        request: Request<()>,
    ) -> Result<Self, Box<Response<ResponseBody<Stream>>>> {
        let mut call = Box::pin(service.clone().call(request));
        match poll(&mut call) {
            Some(response) => Err(Box::new(response.unwrap())),
            None => {
                let answer = service.get_ref().started.lock().unwrap().pop().unwrap();
                Ok(Self { call, answer })
            }
        }
    }

    fn responds(mut self, body: Stream) -> Response<ResponseBody<Stream>> {
        self.answer.send(Some(Ok(Response::new(body)))).unwrap();
        poll(&mut self.call).expect("the handler has ended").unwrap()
    }

    fn ends_by(self, end: End) {
        match end {
            End::BodyRead => {
                let mut body = self.responds(Stream::of(2)).into_body();
                assert_eq!(frame(&mut body), Poll::Ready(Some(true)));
                assert_eq!(frame(&mut body), Poll::Ready(Some(true)));
                assert_eq!(frame(&mut body), Poll::Ready(None));
                // A body that was read to its end may be kept.
                std::mem::forget(body);
            }
            End::BodyFailed => {
                let failing = Stream { frames: vec![Err("broken")], ends: false };
                let mut body = self.responds(failing).into_body();
                assert_eq!(frame(&mut body), Poll::Ready(Some(false)));
                std::mem::forget(body);
            }
            End::BodyDropped => drop(self.responds(Stream::of(2))),
            End::BodyDroppedHalfway => {
                let mut body = self.responds(Stream::of(2)).into_body();
                assert_eq!(frame(&mut body), Poll::Ready(Some(true)));
                drop(body);
            }
            End::BodyTaken => drop(self.responds(Stream::of(2)).into_body().into_inner()),
            End::Failed => {
                let Self { mut call, answer } = self;
                answer.send(Some(Err("gone"))).unwrap();
                assert_eq!(poll(&mut call).unwrap().unwrap_err(), "gone");
                std::mem::forget(call);
            }
            End::Panicked => {
                let Self { mut call, answer } = self;
                answer.send(None).unwrap();
                catch_unwind(AssertUnwindSafe(|| poll(&mut call).is_some())).unwrap_err();
                std::mem::forget(call);
            }
            End::Disconnected => drop(self.call),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    BodyRead,
    BodyFailed,
    BodyDropped,
    BodyDroppedHalfway,
    BodyTaken,
    Failed,
    Panicked,
    Disconnected,
}

const ENDS: [End; 8] = [
    End::BodyRead,
    End::BodyFailed,
    End::BodyDropped,
    End::BodyDroppedHalfway,
    End::BodyTaken,
    End::Failed,
    End::Panicked,
    End::Disconnected,
];

#[track_caller]
fn start(service: &RateLimit<Handler>) -> Running {
    Running::start(service).map_err(|response| response.status()).expect("it is admitted")
}

#[test]
fn a_token_comes_back_once_however_the_response_ends() {
    for end in ENDS {
        let limiter = here();
        let service = limiter.layer(&UPLOADS).layer(Handler::default());
        let other = start(&service);
        let running = start(&service);
        assert_eq!(left(&limiter, &UPLOADS), 2, "{end:?}");
        running.ends_by(end);
        // One that came back twice would be that of the other request.
        assert_eq!(left(&limiter, &UPLOADS), 3, "{end:?}");
        other.ends_by(end);
        assert_eq!(left(&limiter, &UPLOADS), 4, "{end:?}");
    }
}

#[test]
fn a_request_is_in_flight_until_its_body_has_ended() {
    let limiter = here();
    let service = limiter.layer(&ONE).layer(Handler::default());
    let mut body = start(&service).responds(Stream::of(1)).into_body();
    assert_eq!(left(&limiter, &ONE), 0, "the head alone is no end");
    assert_eq!(frame(&mut body), Poll::Ready(Some(true)));
    assert_eq!(left(&limiter, &ONE), 0, "more may come");
    assert!(Running::start(&service).is_err());
    assert_eq!(frame(&mut body), Poll::Ready(None));
    assert_eq!(left(&limiter, &ONE), 1);
    assert!(Running::start(&service).is_ok());
}

#[test]
fn a_service_that_panics_in_its_call_gives_back() {
    let limiter = here();
    let handler = Handler { panics: true, ..Handler::default() };
    let service = limiter.layer(&ONE).layer(handler);
    for _ in 0..3 {
        let call = AssertUnwindSafe(|| drop(service.clone().call(Request::new(()))));
        catch_unwind(call).unwrap_err();
        assert_eq!(left(&limiter, &ONE), 1);
    }
}

/// Years pass: only an end gives back.
#[test]
fn no_time_brings_tokens() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let service = limiter.layer(&ONE).layer(Handler::default());
    let running = start(&service);
    for _ in 0..20 {
        clock.advance(10 * 365 * 24 * HOUR);
        assert_eq!(left(&limiter, &ONE), 0);
        assert!(Running::start(&service).is_err());
    }
    running.ends_by(End::BodyRead);
    assert_eq!(left(&limiter, &ONE), 1);
}

// What a client is told.

fn fields<B>(response: &Response<B>) -> [Option<&str>; 3] {
    ["ratelimit-policy", "ratelimit", "retry-after"]
        .map(|name| response.headers().get(name).map(|value| value.to_str().unwrap()))
}

#[test]
fn a_refusal_names_no_time_and_the_fields_no_window() {
    let limiter = here();
    let layer = limiter.layer(&ONE);
    let service = layer.clone().layer(Handler::default());
    let running = start(&service);
    let policy = Some("\"one\";q=1;qu=\"concurrent-requests\"");
    let refused = Running::start(&service).err().unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fields(&refused), [policy, Some("\"one\";r=0"), None]);
    let text = |refused: Box<Response<ResponseBody<Stream>>>| {
        let mut text = refused.into_body();
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut text).poll_frame(&mut cx) else {
            panic!("it has a text");
        };
        frame.into_data().unwrap()
    };
    let problem = |status: u16, detail: &str| {
        format!(
            "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
             \"title\":\"Quota Exceeded\",\"status\":{status},\"detail\":\"{detail}\",\
             \"violated-policies\":[\"one\"]}}"
        )
    };
    assert_eq!(text(refused), problem(429, "try again when another request has ended"));
    let plain = layer.clone().on_refusal(OnRefusal::plain_text()).layer(Handler::default());
    assert_eq!(
        text(Running::start(&plain).err().unwrap()),
        "Too Many Requests: refused by `one`, try again when another request has ended\n"
    );
    let full = layer.queue(Queue::new(MINUTE).max_waiters(0)).layer(Handler::default());
    assert_eq!(text(Running::start(&full).err().unwrap()), problem(503, "the queue is full"));
    let admitted = running.responds(Stream::of(0));
    assert_eq!(fields(&admitted), [policy, Some("\"one\";r=0"), None]);
}

#[test]
fn older_dialects_leave_out_a_limit_without_a_window() {
    let limiter = here();
    let rules =
        |first: &Limit| limiter.layer(first).dialects([Dialect::Draft7, Dialect::XRateLimit]);
    let names = ["ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining"];
    let seen = |response: &Response<_>| {
        names.map(|name| {
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        })
    };
    let alone = rules(&UPLOADS).layer(Handler::default());
    assert_eq!(seen(&start(&alone).responds(Stream::of(0))), [None, None, None, None]);
    let service = rules(&UPLOADS).and(&CALLS).layer(Handler::default());
    let wanted = ["10;w=60", "limit=10, remaining=9, reset=54", "10", "9"];
    assert_eq!(
        seen(&start(&service).responds(Stream::of(0))),
        wanted.map(|value| Some(value.to_owned()))
    );
}

// Several limits.

#[test]
fn a_rate_and_requests_in_flight_are_taken_both_or_not_at_all() {
    let limiter = here();
    let layer = limiter.layer(&ONE).and(&CALLS);
    let service = layer.layer(Handler::default());
    let running = start(&service);
    assert_eq!((left(&limiter, &ONE), left(&limiter, &CALLS)), (0, 9));
    let refused = Running::start(&service).err().unwrap();
    let policies = Some("\"one\";q=1;qu=\"concurrent-requests\", \"calls\";q=10;w=60");
    // The end of the other request is unknown.
    assert_eq!(fields(&refused), [policies, Some("\"one\";r=0, \"calls\";r=9;t=54"), None]);
    assert_eq!(left(&limiter, &CALLS), 9, "a refusal takes nothing");
    at_once(limiter.limit(&CALLS).cost(9)).unwrap();
    // Before the rate has a token again, no request that ends helps.
    let refused = Running::start(&service).err().unwrap();
    assert_eq!(fields(&refused), [policies, Some("\"one\";r=0, \"calls\";r=0;t=6"), Some("6")]);
    running.ends_by(End::BodyRead);
    assert_eq!((left(&limiter, &ONE), left(&limiter, &CALLS)), (1, 0), "the rate keeps its token");
    let refused = Running::start(&service).err().unwrap();
    assert_eq!(fields(&refused), [policies, Some("\"one\";r=1, \"calls\";r=0;t=6"), Some("6")]);
    assert_eq!(left(&limiter, &ONE), 1);
}

/// The plan of a user says how many at once.
#[test]
fn a_chosen_limit_counts_as_well() {
    static TWO: Limit = Limit::new("uploads", Quota::in_flight(2));
    static RATE: Limit = Limit::new("uploads", Quota::token_bucket(5, MINUTE));
    let limiter = here();
    let rule = Rule::new(&RATE).key(header("x-user")).limit_with(|head| {
        Some(if head.headers()["x-user"] == "paying" { &UPLOADS } else { &TWO })
    });
    let service = limiter.layer(rule).layer(Handler::default());
    for (user, most) in [("paying", 4), ("free", 2)] {
        let request = || Request::builder().header("x-user", user).body(()).unwrap();
        for _ in 0..3 {
            let running: Vec<_> =
                (0..most).map(|_| Running::send(&service, request()).ok().unwrap()).collect();
            assert!(Running::send(&service, request()).is_err());
            running.into_iter().zip(ENDS).for_each(|(running, end)| running.ends_by(end));
        }
    }
}

#[test]
fn a_shadow_counts_and_refuses_nothing() {
    let limiter = here();
    let service = limiter.layer(Rule::new(&ONE).shadow()).layer(Handler::default());
    for end in ENDS {
        let (first, second) = (start(&service), start(&service));
        assert_eq!(left(&limiter, &ONE), 0);
        second.ends_by(end);
        assert_eq!(left(&limiter, &ONE), 0, "it was not counted");
        first.ends_by(end);
        assert_eq!(left(&limiter, &ONE), 1);
    }
}

/// What settles a request is about what it costs, and it still runs.
#[test]
fn settlements_of_the_response_give_back_no_request_in_flight() {
    static TOKENS: Limit = Limit::new("tokens", Quota::token_bucket(1_000, MINUTE));
    let limiter = here();
    let lefts = || (left(&limiter, &ONE), left(&limiter, &TOKENS));
    let rules = limiter
        .layer(Rule::new(&ONE).refund_if(|_| true))
        .and(Rule::new(&TOKENS).cost(100))
        .settle()
        .expose();
    let service = rules.clone().layer(Handler::default());
    let running = start(&service);
    let mut response = Response::new(Stream::of(1));
    response.extensions_mut().insert(tollgate::middleware::ActualCost::new(30));
    let Running { mut call, answer } = running;
    answer.send(Some(Ok(response))).unwrap();
    let response = poll(&mut call).unwrap().unwrap();
    assert_eq!(lefts(), (0, 970));
    drop(response);
    assert_eq!(lefts(), (1, 970));

    let refunding = tower::service_fn(|request: Request<()>| async move {
        let admission: &Admission = request.extensions().get().unwrap();
        admission.refund().await.unwrap();
        Ok::<_, Infallible>(Response::new(Stream::of(1)))
    });
    let response = at_once(rules.layer(refunding).oneshot(Request::new(()))).unwrap();
    assert_eq!(lefts(), (0, 970));
    drop(response);
    assert_eq!(lefts(), (1, 970));
}

#[test]
fn the_body_of_a_clone_is_the_same_response() {
    let limiter = here();
    let hello = tower::service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(http_body_util::Full::new(Bytes::from("hello"))))
    });
    let service = limiter.layer(&ONE).layer(hello);
    let body = at_once(service.oneshot(Request::new(()))).unwrap().into_body();
    let clone = body.clone();
    drop(body);
    assert_eq!(left(&limiter, &ONE), 0);
    drop(clone);
    assert_eq!(left(&limiter, &ONE), 1);
}

#[test]
fn a_reset_forgets_the_requests_in_flight() {
    let limiter = here();
    let service = limiter.layer(&ONE).layer(Handler::default());
    let before = start(&service);
    at_once(limiter.reset(&ONE)).unwrap();
    let after = start(&service);
    before.ends_by(End::BodyRead);
    assert_eq!(left(&limiter, &ONE), 0, "its token was forgiven");
    after.ends_by(End::BodyRead);
    assert_eq!(left(&limiter, &ONE), 1);
}

#[test]
fn requests_in_flight_stay_counted_when_the_numbers_change() {
    let limiter = here();
    let service = limiter.layer(&UPLOADS).layer(Handler::default());
    let running: Vec<_> = (0..4).map(|_| start(&service)).collect();
    limiter.replace(&UPLOADS, Quota::in_flight(6)).unwrap();
    let more: Vec<_> = (0..2).map(|_| start(&service)).collect();
    assert!(Running::start(&service).is_err());
    limiter.replace(&UPLOADS, Quota::in_flight(3)).unwrap();
    running.into_iter().zip(ENDS).for_each(|(running, end)| running.ends_by(end));
    let third = start(&service);
    assert!(Running::start(&service).is_err(), "two, and this one");
    more.into_iter().chain([third]).zip(ENDS).for_each(|(running, end)| running.ends_by(end));
    assert_eq!(left(&limiter, &UPLOADS), 3);
}

// Calls in code.

#[test]
fn a_guard_gives_back_what_is_in_flight_and_nothing_else() {
    let limiter = here();
    let call = || at_once(limiter.limit(&ONE).and(&CALLS).cost(3)).map(|permit| permit.in_flight());
    let lefts = || (left(&limiter, &ONE), left(&limiter, &CALLS));
    let guard = call().unwrap();
    assert_eq!(lefts(), (0, 7));
    let error = call().unwrap_err();
    assert_eq!(error.retry_after(), None);
    assert_eq!(
        error.to_string(),
        "refused by limit `one` (retry when a request in flight has ended)"
    );
    drop(guard);
    assert_eq!(lefts(), (1, 7));
    let guard = at_once(limiter.limit(&ONE)).unwrap().into_owned().in_flight();
    let panicking = AssertUnwindSafe(move || {
        assert_eq!(guard.permit().remaining(), 0);
        panic!("the work fails");
    });
    catch_unwind(panicking).unwrap_err();
    assert_eq!(lefts(), (1, 7));
    // Work that is over is no longer in flight, whatever it has cost.
    let permit = at_once(limiter.limit(&ONE).and(&CALLS).cost(3)).unwrap();
    assert_eq!(lefts(), (0, 4));
    at_once(permit.settle(1)).unwrap();
    assert_eq!(lefts(), (1, 6));
}

#[test]
fn a_snapshot_of_requests_in_flight_has_no_times() {
    let limiter = here();
    let _guard = at_once(limiter.limit(&ONE)).unwrap().in_flight();
    let snapshot = at_once(limiter.peek(&ONE)).unwrap();
    assert!(!snapshot.fits());
    assert_eq!(snapshot.wait(), None);
    assert_eq!([snapshot.window_start(), snapshot.window_end(), snapshot.resets_at()], [None; 3]);
}

// Memory.

#[test]
fn a_bucket_with_requests_in_flight_is_not_evicted_and_one_without_takes_no_room() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(64), &clock);
    let permits: Vec<_> = (0..64)
        .map(|key: u64| at_once(limiter.limit(&ONE).key(key)).unwrap().into_owned().in_flight())
        .collect();
    for key in 0..1_000_u64 {
        drop(at_once(limiter.limit(&CALLS).key(key)));
        drop(at_once(limiter.limit(&ONE).key(1_000 + key)).map(|permit| permit.in_flight()));
    }
    for key in 0..64_u64 {
        assert!(at_once(limiter.limit(&ONE).key(key)).is_err(), "{key} is forgotten");
    }
    drop(permits);
    // They are full again, and go when others come.
    clock.advance(MINUTE + 2 * SECOND);
    for key in 0..1_000_u64 {
        drop(at_once(limiter.limit(&CALLS).key(10_000 + key)));
    }
    assert!(memory.len() <= 64, "{} buckets", memory.len());
}

/// Its requests end with the process.
#[test]
fn a_dump_has_no_requests_in_flight() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let _guards = [&ONE, &LEASED].map(|limit| at_once(limiter.limit(limit)).unwrap().in_flight());
    at_once(limiter.limit(&CALLS)).unwrap();
    let mut dump = Vec::new();
    memory.save(&mut dump).unwrap();
    let loaded = Memory::new().clock(clock.clone()).load(dump.as_slice()).unwrap();
    let next = RateLimiter::new(loaded);
    assert_eq!([&ONE, &LEASED, &CALLS].map(|limit| left(&next, limit)), [1, 1, 9]);
}

// Stores that other processes share.

#[tokio::test(start_paused = true)]
async fn a_shared_store_needs_a_time_after_which_tokens_are_lost() {
    let shared = Shared::new();
    let limiter = shared.limiter();
    let error = limiter.limit(&ONE).await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_outage());
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "shared backend is misconfigured: `one` counts requests in flight, and a process that crashes \
         gives nothing back (say when its tokens are there again: \
         `Quota::in_flight(1).lost_after(HOUR)`)"
    );
    let service = limiter.layer(&ONE).layer(Handler::default());
    assert_eq!(Running::start(&service).err().unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn all_processes_count_together_on_a_shared_store() {
    let shared = Shared::new();
    let limiters = [shared.limiter(), shared.limiter()];
    let services = limiters.clone().map(|limiter| limiter.layer(&LEASED).layer(Handler::default()));
    for end in ENDS {
        let running = services.each_ref().map(start);
        for service in &services {
            let refused = Running::start(service).err().unwrap();
            assert_eq!(fields(&refused)[2], None, "it ends sooner than in an hour");
        }
        running.into_iter().for_each(|running| running.ends_by(end));
        assert_eq!(left(&limiters[0], &LEASED), 2, "{end:?}");
        tokio::time::advance(MINUTE).await;
    }
}

/// A process that crashes; and one whose request runs for longer than that.
#[tokio::test(start_paused = true)]
async fn a_lost_token_is_there_again_and_comes_back_no_second_time() {
    for limiter in [Shared::new().limiter(), paused()] {
        let service = limiter.layer(&LEASED).layer(Handler::default());
        let (crashed, slow) = (start(&service), start(&service));
        std::mem::forget(crashed);
        tokio::time::advance(HOUR - ms(1)).await;
        assert!(Running::start(&service).is_err());
        tokio::time::advance(ms(1)).await;
        let running = [start(&service), start(&service)];
        slow.ends_by(End::BodyRead);
        assert!(Running::start(&service).is_err(), "its token was there again before");
        running.into_iter().for_each(|running| running.ends_by(End::BodyRead));
        assert_eq!(left(&limiter, &LEASED), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_the_store_decides_gives_back() {
    let (store, limiter, here) = Late::new();
    let service = limiter.layer(&LEASED).layer(Handler::default());
    let held = store.close();
    let mut call = Box::pin(service.clone().call(Request::new(())));
    assert!(poll(&mut call).is_none());
    assert_eq!(left(&here, &LEASED), 1, "the store has taken it");
    drop(call);
    held.let_go();
    settled().await;
    assert_eq!(left(&here, &LEASED), 2);
    store.open();
    let mut call = Box::pin(service.clone().call(Request::new(())));
    assert!(poll(&mut call).is_none());
    settled().await;
    assert!(poll(&mut call).is_none(), "it runs");
    assert_eq!(left(&here, &LEASED), 1);
    drop(call);
    settled().await;
    assert_eq!(left(&here, &LEASED), 2);
}

/// A request that has waited runs before the store has decided about its shadow.
#[tokio::test(start_paused = true)]
async fn a_shadow_that_is_decided_late_gives_back() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    for (end, panics) in ENDS.map(|end| (Some(end), false)).into_iter().chain([(None, true)]) {
        let (store, limiter, here) = Late::new();
        let rules = limiter.layer(&SPACED).and(Rule::new(&LEASED).shadow()).queue(MINUTE);
        let service = rules.layer(Handler { panics, ..Handler::default() });
        let mut call = Box::pin(service.clone().call(Request::new(())));
        for _ in 0..2 {
            assert!(poll(&mut call).is_none());
            settled().await;
        }
        assert_eq!(left(&here, &LEASED), 2, "it waits for its turn");
        let held = store.close();
        tokio::time::advance(ms(101)).await;
        if panics {
            catch_unwind(AssertUnwindSafe(|| poll(&mut call).is_some())).unwrap_err();
        } else {
            assert!(poll(&mut call).is_none(), "it runs");
        }
        assert_eq!(left(&here, &LEASED), 1);
        if let Some(end) = end {
            let answer = service.get_ref().started.lock().unwrap().pop().unwrap();
            Running { call, answer }.ends_by(end);
        }
        settled().await;
        assert_eq!(left(&here, &LEASED), 1, "the store has not answered, {end:?}");
        held.let_go();
        settled().await;
        assert_eq!(left(&here, &LEASED), 2, "{end:?}");
    }
}

/// Its body has begun by then.
#[tokio::test(start_paused = true)]
async fn a_shadow_that_is_decided_during_the_body_counts_until_its_end() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    let (store, limiter, here) = Late::new();
    let rules = limiter.layer(&SPACED).and(Rule::new(&LEASED).shadow()).queue(MINUTE);
    let service = rules.layer(Handler::default());
    let mut call = Box::pin(service.clone().call(Request::new(())));
    for _ in 0..2 {
        assert!(poll(&mut call).is_none());
        settled().await;
    }
    let held = store.close();
    tokio::time::advance(ms(101)).await;
    assert!(poll(&mut call).is_none(), "it runs");
    let answer = service.get_ref().started.lock().unwrap().pop().unwrap();
    let mut body = Running { call, answer }.responds(Stream::of(1)).into_body();
    assert_eq!(frame(&mut body), Poll::Ready(Some(true)));
    held.let_go();
    store.open();
    settled().await;
    assert_eq!(left(&here, &LEASED), 1, "more may come");
    assert_eq!(frame(&mut body), Poll::Ready(None));
    settled().await;
    assert_eq!(left(&here, &LEASED), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_before_its_shadow_is_decided_gives_back() {
    let (store, limiter, here) = Late::new();
    let service = limiter.layer(Rule::new(&LEASED).shadow()).layer(Handler::default());
    let held = store.close();
    let mut call = Box::pin(service.clone().call(Request::new(())));
    assert!(poll(&mut call).is_none());
    assert_eq!((started(&service), left(&here, &LEASED)), (0, 1));
    drop(call);
    held.let_go();
    settled().await;
    assert_eq!(left(&here, &LEASED), 2);
}

/// Tokens that a handler takes while its request runs come back with it, or at once after its end.
#[tokio::test(start_paused = true)]
async fn tokens_that_are_charged_more_come_back_as_well() {
    static MANY: Limit = Limit::new("many", Quota::in_flight(8).lost_after(HOUR));
    for is_late in [false, true] {
        let (store, limiter, here) = Late::new();
        let (tell, told) = oneshot::channel();
        let tell = Arc::new(Mutex::new(Some(tell)));
        let exposing = tower::service_fn(move |request: Request<()>| {
            let admission = request.extensions().get::<Admission>().unwrap().only(&MANY);
            assert!(tell.lock().unwrap().take().unwrap().send(admission).is_ok());
            async { Ok::<_, Infallible>(Response::new(Stream::of(1))) }
        });
        let service = limiter.layer(&MANY).expose().layer(exposing);
        let response = service.oneshot(Request::new(())).await.unwrap();
        let admission = told.await.unwrap();
        let held = store.close();
        let mut charge = Box::pin(admission.charge(3));
        assert!(poll(&mut charge).is_none());
        assert_eq!(left(&here, &MANY), 4);
        let response = (!is_late).then_some(response);
        held.let_go();
        store.open();
        charge.await.unwrap();
        settled().await;
        assert_eq!(left(&here, &MANY), if is_late { 8 } else { 4 });
        drop(response);
        settled().await;
        assert_eq!(left(&here, &MANY), 8, "late: {is_late}");
    }
}

/// A call in code that is dropped, as by a client that disconnects.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_the_store_decides_gives_back() {
    let (store, limiter, here) = Late::new();
    let held = store.close();
    let mut call = Box::pin(limiter.limit(&LEASED).and(&CALLS).into_future());
    assert!(poll(&mut call).is_none());
    assert_eq!((left(&here, &LEASED), left(&here, &CALLS)), (1, 9), "the store has taken it");
    drop(call);
    held.let_go();
    store.open();
    settled().await;
    assert_eq!((left(&here, &LEASED), left(&here, &CALLS)), (2, 9), "a rate keeps its token");
    let _guard = limiter.limit(&LEASED).await.unwrap().in_flight();
    settled().await;
    assert_eq!(left(&here, &LEASED), 1);
}

/// What was used of a rate would never come back, as no request has it.
#[test]
fn a_rate_is_not_replaced_by_requests_in_flight() {
    let limiter = here();
    at_once(limiter.limit(&CALLS).cost(7)).unwrap();
    let error = limiter.replace(&CALLS, Quota::in_flight(10)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "limit \"calls\" keeps its quota, and cannot take 10 in flight: what its keys have used counts \
         requests in flight for one of them, and requests in a time for the other (use a limit of \
         another name)"
    );
    assert_eq!(left(&limiter, &CALLS), 3);
    limiter.replace(&ONE, "1 per hour".parse().unwrap()).unwrap_err();
    limiter.replace(&CALLS, Quota::none()).unwrap();
    limiter.replace(&ONE, Quota::none()).unwrap();
    assert!(at_once(limiter.limit(&ONE)).is_err());
    limiter.replace(&ONE, Quota::in_flight(2)).unwrap();
    assert_eq!(left(&limiter, &ONE), 2);
}

// The queue.

/// The request of a call in a task of its own, once it runs.
async fn queued(service: &RateLimit<Handler>) -> tokio::task::JoinHandle<StatusCode> {
    let mut service = service.clone();
    let call = service.ready().await.unwrap().call(Request::new(()));
    let task = tokio::spawn(async move { call.await.unwrap().status() });
    settled().await;
    task
}

fn started(service: &RateLimit<Handler>) -> usize {
    service.get_ref().started.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_token_that_comes_back_moves_the_head_of_the_line_at_once() {
    for end in ENDS {
        let limiter = paused();
        let service = limiter.layer(&ONE).queue(30 * SECOND).layer(Handler::default());
        let running = start(&service);
        let (first, second) = (queued(&service).await, queued(&service).await);
        assert_eq!((started(&service), limiter.peek(&ONE).waiting()), (0, 2));
        assert_eq!(limiter.peek(&ONE).longest_wait(), Duration::ZERO, "it is unknown");
        tokio::time::advance(ms(300)).await;
        running.ends_by(end);
        settled().await;
        assert_eq!((started(&service), limiter.peek(&ONE).waiting()), (1, 1), "{end:?}");
        // A newcomer does not overtake.
        let third = queued(&service).await;
        let answer = service.get_ref().started.lock().unwrap().pop().unwrap();
        answer.send(Some(Ok(Response::new(Stream::of(0))))).unwrap();
        assert_eq!(first.await.unwrap(), StatusCode::OK);
        settled().await;
        assert_eq!((started(&service), limiter.peek(&ONE).waiting()), (1, 1));
        second.abort();
        settled().await;
        assert_eq!((started(&service), limiter.peek(&ONE).waiting()), (2, 0));
        third.abort();
        settled().await;
        assert_eq!(left(&limiter, &ONE), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_stays_in_line_for_as_long_as_it_may_and_is_refused_then() {
    let limiter = paused();
    let layer = limiter.layer(&ONE).and(&CALLS).queue(2 * SECOND);
    let service = layer.layer(Handler::default());
    let running = start(&service);
    let mut call = Box::pin(service.clone().call(Request::new(())));
    assert!(poll(&mut call).is_none());
    tokio::time::advance(2 * SECOND - ms(1)).await;
    assert!(poll(&mut call).is_none());
    assert_eq!(limiter.peek(&ONE).waiting(), 1);
    tokio::time::advance(ms(2)).await;
    let refused = poll(&mut call).unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fields(&refused)[1..], [Some("\"one\";r=0, \"calls\";r=9;t=54"), None]);
    assert_eq!(limiter.peek(&ONE).waiting(), 0);
    running.ends_by(End::BodyRead);
    // It has given up both places, and kept none of the tokens.
    assert_eq!((left(&limiter, &ONE), left(&limiter, &CALLS)), (1, 9));
}

/// Nobody knows its instant, so it would be later than that of any wait.
#[tokio::test(start_paused = true)]
async fn a_queue_that_refuses_early_keeps_no_request_in_line() {
    let limiter = paused();
    let queue = Queue::new(MINUTE).refuse_early();
    let service = limiter.layer(&ONE).queue(queue).layer(Handler::default());
    let _running = start(&service);
    let refused = Running::start(&service).err().unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fields(&refused)[2], None);
}

/// On a shared store, a queue stays only if it is told to: tokens that another process gives back move
/// nobody forward here.
#[tokio::test(start_paused = true)]
async fn on_a_shared_store_requests_stay_for_those_of_their_own_process() {
    let limiter = Shared::new().limiter();
    let service = limiter.layer(&LEASED).queue(MINUTE).layer(Handler::default());
    let running = [start(&service), start(&service)];
    assert_eq!(Running::start(&service).err().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    running.into_iter().for_each(|running| running.ends_by(End::BodyRead));
    for end in ENDS {
        let queue = Queue::new(MINUTE).stay();
        let service = limiter.layer(&LEASED).queue(queue).layer(Handler::default());
        let [first, second] = [start(&service), start(&service)];
        let waits = queued(&service).await;
        assert_eq!(started(&service), 0, "{end:?}");
        first.ends_by(end);
        settled().await;
        assert_eq!(started(&service), 1, "{end:?}");
        let answer = service.get_ref().started.lock().unwrap().pop().unwrap();
        answer.send(Some(Ok(Response::new(Stream::of(0))))).unwrap();
        assert_eq!(waits.await.unwrap(), StatusCode::OK);
        second.ends_by(end);
        settled().await;
        assert_eq!(left(&limiter, &LEASED), 2, "{end:?}");
    }
}

/// They waited until one request gave back tokens of both limits, which none does: while requests
/// waited, nearly nothing ran.
#[tokio::test(start_paused = true)]
async fn on_a_shared_store_requests_in_flight_end_for_those_with_a_rate_too() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(2, SECOND).max_reserved(10));
    for (limit, run_at_once) in [(&CALLS, 1), (&SPACED, 0)] {
        let limiter = Shared::new().limiter();
        let layer = limiter.layer(&LEASED).and(limit).queue(Queue::new(MINUTE).stay());
        let service = layer.layer(Handler::default());
        let [first, second] = [start(&service), start(&service)];
        let (leaves, waits) = (queued(&service).await, queued(&service).await);
        leaves.abort();
        first.ends_by(End::BodyRead);
        settled().await;
        // The rate has a token in half a second.
        assert_eq!(started(&service), run_at_once, "{limit:?}");
        tokio::time::sleep(ms(501)).await;
        let answer = service.get_ref().started.lock().unwrap().pop().unwrap();
        answer.send(Some(Ok(Response::new(Stream::of(0))))).unwrap();
        assert_eq!(waits.await.unwrap(), StatusCode::OK);
        second.ends_by(End::BodyRead);
        settled().await;
        assert_eq!(left(&limiter, &LEASED), 2, "{limit:?}");
    }
}

/// A request that waits for a rate has a place among those in flight, which went to no waiter.
#[tokio::test(start_paused = true)]
async fn on_a_shared_store_a_place_in_flight_that_is_given_up_goes_to_the_next() {
    static ONCE: Limit = Limit::new("once", Quota::token_bucket(1, MINUTE).max_reserved(10));
    let limiter = Shared::new().limiter();
    let _paid = at_once(limiter.limit(&ONCE)).unwrap();
    let queue = || Queue::new(2 * MINUTE).stay();
    let service = limiter.layer(&LEASED).queue(queue()).layer(Handler::default());
    let spaced = limiter.layer(&LEASED).and(&ONCE).queue(queue()).layer(Handler::default());
    let _running = start(&service);
    let (leaves, waits) = (queued(&spaced).await, queued(&service).await);
    assert_eq!(started(&service), 0);
    leaves.abort();
    settled().await;
    assert_eq!(started(&service), 1);
    drop(waits);
}

#[tokio::test(start_paused = true)]
async fn requests_in_line_leave_at_a_drain_and_when_their_clients_do() {
    let limiter = paused();
    let service = limiter.layer(&ONE).queue(MINUTE).layer(Handler::default());
    let running = start(&service);
    let (leaves, drained) = (queued(&service).await, queued(&service).await);
    leaves.abort();
    settled().await;
    assert_eq!(limiter.peek(&ONE).waiting(), 1);
    limiter.drain(10 * SECOND);
    assert_eq!(drained.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    let refused = Running::start(&service).err().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "it may not wait any more");
    running.ends_by(End::BodyRead);
    assert_eq!(left(&limiter, &ONE), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_for_requests_in_flight_has_its_bounds() {
    static THREE: Limit = Limit::new("three", Quota::in_flight(3).max_reserved(2));
    let limiter = paused();
    let queue = Queue::new(MINUTE).max_waiters(1).on_full(StatusCode::SERVICE_UNAVAILABLE);
    let service = limiter.layer(&ONE).queue(queue).layer(Handler::default());
    let _running = start(&service);
    let _waits = queued(&service).await;
    let refused = Running::start(&service).err().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "the queue is full");
    // More than there can ever be: no request that ends helps.
    let large = limiter.layer(&THREE).cost(4).queue(MINUTE).layer(Handler::default());
    let refused = Running::start(&large).err().unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let service = limiter.layer(&THREE).cost(2).queue(MINUTE).layer(Handler::default());
    let _running = start(&service);
    let _waits = queued(&service).await;
    let refused = Running::start(&service).err().unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "no deeper into debt");
}

/// A service that fails to get ready when the turn of a request has come.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_at_the_turn_gives_back() {
    #[derive(Clone)]
    struct Unready(Handler);
    impl Service<Request<()>> for Unready {
        type Response = Response<Stream>;
        type Error = &'static str;
        type Future = <Handler as Service<Request<()>>>::Future;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Err("not ready"))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            self.0.call(request)
        }
    }
    let limiter = paused();
    let mut service = limiter.layer(&ONE).queue(MINUTE).layer(Unready(Handler::default()));
    let mut first = Box::pin(service.call(Request::new(())));
    assert!(poll(&mut first).is_none());
    let mut second = Box::pin(service.call(Request::new(())));
    assert!(poll(&mut second).is_none());
    drop(first);
    settled().await;
    assert_eq!(poll(&mut second).unwrap().unwrap_err(), "not ready");
    assert_eq!(left(&limiter, &ONE), 1);
}

// At random.

/// Never more than four run, and none is refused while fewer do.
#[test]
fn random_arrivals_and_ends_never_exceed_the_limit_nor_are_refused_below_it() {
    for seed in seeds(40) {
        let mut dice = Dice(seed);
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let rules = limiter.layer(Rule::new(&UPLOADS).key(header("x-user")));
        let service = rules.layer(Handler::default());
        let mut running: [Vec<Held>; 3] = Default::default();
        for step in 0..400 {
            let user = dice.nth(&running);
            let of_user = &mut running[user];
            let context = || format!("seed {seed}, step {step}");
            match dice.below(5) {
                0..=1 => {
                    let request = Request::builder().header("x-user", user).body(()).unwrap();
                    let admitted = Running::send(&service, request);
                    assert_eq!(admitted.is_ok(), of_user.len() < 4, "{}", context());
                    of_user.extend(admitted.ok().map(Held::Running));
                }
                2 => {
                    let permit = at_once(limiter.limit(&UPLOADS).key(user.to_string()));
                    assert_eq!(permit.is_ok(), of_user.len() < 4, "{}", context());
                    of_user.extend(
                        permit.ok().map(|permit| Held::Guard(permit.into_owned().in_flight())),
                    );
                }
                3 if !of_user.is_empty() => {
                    let nth = dice.nth(of_user);
                    match of_user.swap_remove(nth) {
                        Held::Running(running) => match dice.below(2) {
                            0 => running.ends_by(ENDS[dice.nth(&ENDS)]),
                            _ => of_user.push(Held::Body(running.responds(Stream::of(1)))),
                        },
                        Held::Body(body) => drop(body),
                        Held::Guard(guard) => drop(guard),
                    }
                }
                _ => clock.advance(dice.time(2 * HOUR)),
            }
            let key = user.to_string();
            let left = at_once(limiter.peek(&UPLOADS).key(key)).unwrap().remaining();
            assert_eq!(left, 4 - running[user].len() as u64, "{}", context());
        }
    }
}

enum Held {
    Running(Running),
    Body(Response<ResponseBody<Stream>>),
    Guard(tollgate::limiter::InFlight<'static>),
}

/// The same with a queue: whoever waits runs as soon as there is room.
#[tokio::test(start_paused = true)]
async fn random_waiters_run_as_soon_as_there_is_room() {
    for seed in seeds(15) {
        let mut dice = Dice(seed);
        let limiter = paused();
        let queue = Queue::new(MINUTE).max_waiters_per_key(1_000);
        let service = limiter.layer(&UPLOADS).queue(queue).layer(Handler::default());
        let (mut tasks, mut sent, mut ended) = (Vec::new(), 0, 0);
        for step in 0..60 {
            match dice.below(3) {
                0..=1 => {
                    tasks.push(queued(&service).await);
                    sent += 1;
                }
                _ if started(&service) > 0 => {
                    let answer = {
                        let mut started = service.get_ref().started.lock().unwrap();
                        let nth = dice.nth(&started);
                        started.swap_remove(nth)
                    };
                    let ends: [Answer; 2] =
                        [Some(Ok(Response::new(Stream::of(0)))), Some(Err("gone"))];
                    answer.send(ends.into_iter().nth(dice.nth(&[0, 1])).unwrap()).unwrap();
                    ended += 1;
                    settled().await;
                }
                _ => tokio::time::advance(dice.time(ms(200))).await,
            }
            let wanted = (sent - ended).min(4);
            assert_eq!(started(&service), wanted, "seed {seed}, step {step}");
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        settled().await;
        assert_eq!(left(&limiter, &UPLOADS), 4, "seed {seed}");
    }
}

// Observers.

#[test]
fn observers_are_told_of_no_wait() {
    #[derive(Default)]
    struct Waits(Mutex<Vec<(Outcome, Option<Duration>)>>);
    impl Observer for Waits {
        fn on_decision(&self, decision: &Decision<'_>) {
            self.0.lock().unwrap().push((decision.outcome(), decision.wait()));
        }
    }
    let waits = Arc::new(Waits::default());
    let limiter = here().observe(Arc::clone(&waits));
    let service = limiter.layer(&ONE).layer(Handler::default());
    let _running = start(&service);
    assert!(Running::start(&service).is_err());
    assert!(at_once(limiter.limit(&ONE)).is_err());
    let (admitted, refused) = ((Outcome::Admitted, Some(Duration::ZERO)), (Outcome::Refused, None));
    assert_eq!(*waits.0.lock().unwrap(), [admitted, refused, refused]);
}

// Over a real server.

/// A client that reads the head of an endless response, and its status.
async fn connect(server: SocketAddr) -> (TcpStream, String) {
    let mut client = TcpStream::connect(server).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    (client, String::from_utf8(status.to_vec()).unwrap())
}

/// Lets clients try until one is admitted, which a minute has to suffice for.
async fn connect_until_admitted(server: SocketAddr) -> TcpStream {
    let admitted = async {
        loop {
            let (client, status) = connect(server).await;
            if status == "HTTP/1.1 200" {
                return client;
            }
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(MINUTE, admitted).await.expect("no request ends")
}

#[tokio::test]
async fn a_client_that_disconnects_in_the_middle_of_a_stream_frees_its_place() {
    let limiter = RateLimiter::in_memory();
    let stream = async || {
        let first = stream::iter([Ok::<_, Infallible>("data")]);
        axum::body::Body::from_stream(first.chain(stream::pending()))
    };
    let app = Router::new().route("/", get(stream).rate_limit(limiter.layer(&ONE)));
    let server = web::serve(app).await;
    for _ in 0..5 {
        let client = connect_until_admitted(server).await;
        assert_eq!(connect(server).await.1, "HTTP/1.1 429");
        drop(client);
    }
    drop(connect_until_admitted(server).await);
}
