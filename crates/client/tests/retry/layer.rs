//! The layer for clients: which fields name a retry time, when the layer retries, and what it
//! sends.
//!
//! Time is tokio's, paused: it jumps to the next timer when there is nothing else to do.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/polite_client.rs"]
mod polite_client;

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance};
use tollgate::backend::Memory;
use tollgate::clock::{Clock, ManualClock};
use tollgate::fields::{Dialect, ExactWait};
use tollgate::middleware::OnRefusal;
use tollgate::{HOUR, Limit, Quota, RateLimitLayer, RateLimiter, SECOND, Timestamp};
use tollgate_client::ASSUMED_WAIT;
use tollgate_client::retry::{ResponseFuture, Retry, RetryLayer};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A timer of tokio's fires on a whole millisecond, never before its time.
const TICK: Duration = Duration::from_millis(1);

/// Gives its answers in order and repeats the last one; panics if called without being made ready.
#[derive(Debug)]
struct Server {
    ready: bool,
    answers: Arc<Vec<Result<Response<Full<Bytes>>, InnerError>>>,
    readiness: Arc<Mutex<Poll<Result<(), InnerError>>>>,
    seen: Arc<Mutex<Vec<Request<Full<Bytes>>>>>,
    readied: Arc<AtomicU32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct InnerError;

impl Server {
    fn answering(
        answers: impl IntoIterator<Item = Result<Response<Full<Bytes>>, InnerError>>,
    ) -> Self {
        Self {
            ready: false,
            answers: Arc::new(answers.into_iter().collect()),
            readiness: Arc::new(Mutex::new(Poll::Ready(Ok(())))),
            seen: Arc::default(),
            readied: Arc::default(),
        }
    }

    /// Refuses the first requests with these fields, and answers all others.
    fn refusing(times: usize, fields: &[(&str, &str)]) -> Self {
        let refusals = std::iter::repeat_n(answer(429, fields), times);
        Self::answering(refusals.chain([answer(200, &[])]).map(Ok))
    }

    fn sends(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

/// Readiness is reserved by one service; its clone has to be made ready itself.
impl Clone for Server {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            answers: Arc::clone(&self.answers),
            readiness: Arc::clone(&self.readiness),
            seen: Arc::clone(&self.seen),
            readied: Arc::clone(&self.readied),
        }
    }
}

impl Service<Request<Full<Bytes>>> for Server {
    type Response = Response<Full<Bytes>>;
    type Error = InnerError;
    type Future = std::future::Ready<Result<Self::Response, InnerError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        self.readied.fetch_add(1, Ordering::Relaxed);
        let readiness = *self.readiness.lock().unwrap();
        self.ready = readiness.is_ready();
        readiness
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        assert!(self.ready, "called without being made ready");
        self.ready = false;
        let mut seen = self.seen.lock().unwrap();
        let answer = self.answers.get(seen.len()).or(self.answers.last());
        seen.push(request);
        std::future::ready(answer.unwrap().clone())
    }
}

fn answer(status: u16, fields: &[(&str, &str)]) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(Full::from("answer")).unwrap()
}

fn request() -> Request<Full<Bytes>> {
    Request::new(Full::from("request"))
}

/// The status that a request ends with, and how long that took.
async fn ask(layer: &RetryLayer, server: &Server) -> (u16, Duration) {
    let start = Instant::now();
    let response = layer.layer(server.clone()).oneshot(request()).await.unwrap();
    (response.status().as_u16(), start.elapsed())
}

/// That the request has ended with this status, after this time.
#[track_caller]
fn assert_took((status, elapsed): (u16, Duration), wanted: u16, wait: Duration) {
    assert_eq!(status, wanted);
    assert!((wait..wait + 2 * TICK).contains(&elapsed), "{elapsed:?} instead of {wait:?}");
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a request once that is refused with these fields at first: `Pending` if it waits,
/// 200 if it is sent again at once, 429 if the refusal is returned.
fn first_step(fields: &[(&str, &str)], max_wait: Duration) -> Poll<u16> {
    let layer = RetryLayer::new().max_wait(max_wait);
    let future = pin!(layer.layer(Server::refusing(1, fields)).oneshot(request()));
    let response = future.poll(&mut Context::from_waker(Waker::noop()));
    response.map(|response| response.unwrap().status().as_u16())
}

/// That these fields ask for exactly this wait, or for none that can be understood.
///
/// The longest wait that is allowed shows it, and no time has to pass.
#[track_caller]
fn assert_told(fields: &[(&str, &str)], wanted: Option<Duration>) {
    let nano = Duration::from_nanos(1);
    let (max_wait, shown) = match wanted {
        None => (Duration::MAX, Poll::Ready(429)),
        Some(Duration::ZERO) => (Duration::ZERO, Poll::Ready(200)),
        Some(wait) => {
            assert_eq!(first_step(fields, wait - nano), Poll::Ready(429), "longer: {fields:?}");
            (wait, Poll::Pending)
        }
    };
    assert_eq!(first_step(fields, max_wait), shown, "{fields:?} in {max_wait:?}");
}

// Which fields name a retry time.

#[tokio::test(start_paused = true)]
async fn seconds_are_read_however_many_they_are() {
    for (text, seconds) in [
        ("0", 0),
        ("00", 0),
        ("1", 1),
        ("120", 120),
        ("0000000000000000000000000000000002", 2),
        ("18446744073709551615", u64::MAX),
        ("18446744073709551616", u64::MAX),
        (&"9".repeat(4_000), u64::MAX),
        ("  3\t", 3),
    ] {
        assert_told(&[("retry-after", text)], Some(Duration::from_secs(seconds)));
    }
}

#[tokio::test(start_paused = true)]
async fn dates_of_all_three_forms_are_compared_with_the_date_of_the_response() {
    let forms = |second: u8| {
        [
            format!("Sun, 06 Nov 1994 08:49:{second} GMT"),
            format!("Sunday, 06-Nov-94 08:49:{second} GMT"),
            format!("Sun Nov  6 08:49:{second} 1994"),
        ]
    };
    for date in &forms(37) {
        for (second, wait) in [(10, 0), (37, 0), (38, 1), (59, 22)] {
            for until in &forms(second) {
                let fields = [("retry-after", until.as_str()), ("date", date.as_str())];
                assert_told(&fields, Some(Duration::from_secs(wait)));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_date_without_a_date_to_compare_it_with_is_compared_with_the_clock() {
    let at = |time| httpdate::fmt_http_date(time);
    let (past, future) = (at(SystemTime::now() - HOUR), at(SystemTime::now() + HOUR));
    let twice = [("retry-after", &*future), ("date", &*future), ("date", &*future)];
    let cases: [&[_]; 3] =
        [&twice[..1], &[("retry-after", &*future), ("date", "yesterday")], &twice];
    for fields in cases {
        // Within an hour of the hour, however slow the machine is.
        assert_eq!(first_step(fields, 2 * HOUR), Poll::Pending, "{fields:?}");
        assert_eq!(first_step(fields, HOUR / 2), Poll::Ready(429), "{fields:?}");
    }
    assert_told(&[("retry-after", &past)], Some(Duration::ZERO));
}

/// Such a response was returned at once, so its client came back at once.
#[tokio::test(start_paused = true)]
async fn a_wait_that_cannot_be_read_is_half_a_minute() {
    for text in [
        "",
        " ",
        "-1",
        "+1",
        "1e3",
        "0x10",
        "1 2",
        "\u{661}",
        "soon",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:60 GMT",
        "Thu, 31 Feb 2036 08:49:37 GMT",
        "1994-11-06T08:49:37",
    ] {
        assert_told(&[("retry-after", text)], Some(ASSUMED_WAIT));
    }
    assert_told(&[("retry-after", "0"), ("retry-after", "x")], Some(ASSUMED_WAIT));
}

#[tokio::test(start_paused = true)]
async fn fractions_units_and_lists_are_read() {
    for (text, millis) in [
        ("2.0", 2_000),
        ("0.503", 1_000),
        ("292.052427053", 293_000),
        ("0.0", 0),
        ("1, 1", 1_000),
        ("1, 3", 3_000),
        ("1s", 1_000),
        ("1m0.5s", 60_500),
    ] {
        assert_told(&[("retry-after", text)], Some(Duration::from_millis(millis)));
    }
    assert_told(&[("retry-after", "7"), ("retry-after", "7")], Some(7 * SECOND));
    assert_told(&[("retry-after", "7"), ("retry-after-ms", "4321")], Some(4_321 * TICK));
}

#[tokio::test(start_paused = true)]
async fn a_limit_with_nothing_left_names_a_wait_as_well() {
    let exhausted = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30")];
    assert_told(&exhausted, Some(30 * SECOND));
    // What the server asks for is waited for, and no more.
    assert_told(&[exhausted[0], exhausted[1], ("retry-after", "7")], Some(7 * SECOND));
    assert_told(&[("x-ratelimit-remaining", "3"), exhausted[1]], None);
    assert_told(&[], None);
    assert_told(&[("date", "Sun, 06 Nov 1994 08:49:37 GMT")], None);
}

proptest! {
    #[test]
    fn seconds_round_trip(seconds: u64) {
        let runtime = paused();
        let _entered = runtime.enter();
        let text = seconds.to_string();
        assert_told(&[("retry-after", &text)], Some(Duration::from_secs(seconds)));
    }

    #[test]
    fn dates_round_trip(date in 0_u64..250_000_000_000, seconds in 0_u64..1_000_000_000) {
        let runtime = paused();
        let _entered = runtime.enter();
        let at = |at| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(at));
        let fields = [("retry-after", &*at(date + seconds)), ("date", &*at(date))];
        assert_told(&fields, Some(Duration::from_secs(seconds)));
    }

    /// No response makes the layer panic, or wait longer than it is allowed to.
    #[test]
    fn any_text_has_an_answer(after in values(), date in values()) {
        let mut headers = HeaderMap::new();
        headers.extend([(http::header::RETRY_AFTER, after), (http::header::DATE, date)]);
        let mut response = answer(429, &[]);
        *response.headers_mut() = headers;
        let layer = RetryLayer::new().max_wait(Duration::ZERO);
        let server = layer.layer(Server::answering([Ok(response)]));
        prop_assert_eq!(at_once(server.oneshot(request())).unwrap().status(), 429);
    }
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Any bytes that a field may have, and dates with one byte changed.
fn values() -> impl Strategy<Value = HeaderValue> {
    let dates = prop::sample::select(vec![
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Wednesday, 31-Dec-69 23:59:59 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "120",
    ]);
    let changed =
        (dates, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(date, at, byte)| {
            let mut date = date.as_bytes().to_vec();
            let at = at.index(date.len());
            date[at] = byte;
            date
        });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..40), changed]
        .prop_filter_map("a field may have it", |bytes| HeaderValue::from_bytes(&bytes).ok())
}

// When the layer retries.

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_sent_again_when_it_was_told_to() {
    for status in [429, 503] {
        let refusals = [answer(status, &[("retry-after", "2")]), answer(200, &[])];
        let server = Server::answering(refusals.map(Ok));
        assert_took(ask(&RetryLayer::new(), &server).await, 200, 2 * SECOND);
        assert_eq!(server.sends(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn zero_and_the_past_mean_at_once() {
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let past = [("retry-after", "Sun, 06 Nov 1994 08:49:36 GMT"), date];
    for fields in [&[("retry-after", "0")][..], &past, &past[..1]] {
        let server = Server::refusing(3, fields);
        assert_eq!(ask(&RetryLayer::new(), &server).await, (200, Duration::ZERO), "{fields:?}");
        assert_eq!(server.sends(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn other_statuses_are_returned_as_they_are() {
    for status in [200, 202, 301, 400, 404, 425, 500, 502, 504] {
        let server = Server::answering([Ok(answer(status, &[("retry-after", "1")]))]);
        assert_eq!(ask(&RetryLayer::new(), &server).await, (status, Duration::ZERO));
        assert_eq!(server.sends(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn errors_come_through_unchanged_and_nothing_is_sent_again() {
    let refusal = answer(429, &[("retry-after", "1")]);
    for (answers, sends) in [(vec![Err(InnerError)], 1), (vec![Ok(refusal), Err(InnerError)], 2)] {
        let server = Server::answering(answers);
        let error: InnerError =
            RetryLayer::new().layer(server.clone()).oneshot(request()).await.unwrap_err();
        assert_eq!((error, server.sends()), (InnerError, sends));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_as_often_as_is_allowed() {
    let layer = RetryLayer::new();
    for (layer, sends) in [
        (layer.clone(), 5),
        (layer.clone().tries(3), 3),
        (layer.clone().tries(2), 2),
        (layer.clone().tries(1), 1),
        (layer.clone().tries(0), 1),
    ] {
        let server = Server::refusing(usize::from(u8::MAX), &[("retry-after", "1")]);
        let waits = u32::try_from(sends - 1).unwrap();
        let (status, elapsed) = ask(&layer, &server).await;
        assert_eq!((status, server.sends()), (429, sends));
        assert!((waits * SECOND..waits * (SECOND + 2 * TICK) + TICK).contains(&elapsed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_not_begun() {
    let five = RetryLayer::new().max_wait(5 * SECOND);
    for (layer, longest, longer) in [(RetryLayer::new(), 30, "31"), (five, 5, "6")] {
        let server = Server::refusing(1, &[("retry-after", &longest.to_string())]);
        assert_took(ask(&layer, &server).await, 200, longest * SECOND);
        for told in [longer, "99999999999999999999999"] {
            let server = Server::refusing(1, &[("retry-after", told)]);
            assert_eq!(ask(&layer, &server).await, (429, Duration::ZERO));
            assert_eq!(server.sends(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_waits_of_a_request_are_bounded_together() {
    let server = Server::refusing(5, &[("retry-after", "2")]);
    let layer = RetryLayer::new().max_wait(5 * SECOND);
    // Two seconds, two seconds, and of the third two only one is left.
    assert_took(ask(&layer, &server).await, 429, 4 * SECOND);
    assert_eq!(server.sends(), 3);
    // The next request has the whole budget again.
    assert_took(ask(&layer, &server).await, 200, 4 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_longest_possible_wait_is_waited_for() {
    let layer = RetryLayer::new().max_wait(Duration::MAX).jitter(Duration::MAX);
    let server = Server::refusing(1, &[("retry-after", "99999999999999999999999")]);
    let mut future = pin!(layer.layer(server.clone()).oneshot(request()));
    assert!(poll(&mut future).is_pending());
    advance(24 * HOUR).await;
    assert!(poll(&mut future).is_pending());
    assert_eq!(server.sends(), 1);
}

#[tokio::test(start_paused = true)]
async fn jitter_makes_waits_longer_and_never_shorter() {
    let spread = Duration::from_millis(500);
    let waits = async |seed| {
        let layer = RetryLayer::new().jitter(spread).seed(seed);
        let mut waits = Vec::new();
        for _ in 0..200 {
            let server = Server::refusing(1, &[("retry-after", "1")]);
            waits.push(ask(&layer, &server).await.1);
        }
        waits
    };
    let some = waits(7).await;
    assert!(some.iter().all(|wait| (SECOND..SECOND + spread + 2 * TICK).contains(wait)));
    for tenth in 0..10 {
        let from = SECOND + tenth * spread / 10;
        let there = some.iter().filter(|wait| (from..from + spread / 10).contains(*wait)).count();
        assert!((5..=40).contains(&there), "{there} of 200 in the tenth {tenth}");
    }
    assert_eq!(some, waits(7).await);
    assert_ne!(some, waits(8).await);
}

#[tokio::test(start_paused = true)]
async fn unseeded_layers_wait_differently() {
    let waits = async || {
        let layer = RetryLayer::new().jitter(8 * SECOND);
        let mut waits = Vec::new();
        // Alike by chance: one in 8,000 to the power of 8.
        for _ in 0..8 {
            waits.push(ask(&layer, &Server::refusing(1, &[("retry-after", "1")])).await.1);
        }
        waits
    };
    assert_ne!(waits().await, waits().await);
}

#[tokio::test(start_paused = true)]
async fn jitter_counts_as_waiting_and_never_decides() {
    let layer = RetryLayer::new().tries(100).max_wait(10 * SECOND).jitter(SECOND).seed(1);
    let server = Server::refusing(100, &[("retry-after", "1")]);
    let (status, elapsed) = ask(&layer, &server).await;
    assert_eq!(status, 429);
    assert!((9 * SECOND..10 * SECOND + 20 * TICK).contains(&elapsed), "{elapsed:?}");
    assert!((6..11).contains(&server.sends()), "{} sends", server.sends());
    // If the longest wait leaves no room for jitter, none is added.
    for seed in 0..20 {
        let layer = RetryLayer::new().max_wait(2 * SECOND).jitter(HOUR).seed(seed);
        let server = Server::refusing(1, &[("retry-after", "2")]);
        assert_took(ask(&layer, &server).await, 200, 2 * SECOND);
    }
}

// What the layer sends.

#[tokio::test(start_paused = true)]
async fn a_retry_sends_the_whole_request() {
    #[derive(Clone, Debug, PartialEq)]
    struct Tenant(u64);
    let mut request = Request::post("http://them.example/things?all=1")
        .version(Version::HTTP_2)
        .header("x-part", "one")
        .header("x-part", "two")
        .body(Full::from("whole"))
        .unwrap();
    request.extensions_mut().insert(Tenant(7));
    let server = Server::refusing(2, &[("retry-after", "1")]);
    let response = RetryLayer::new().layer(server.clone()).oneshot(request).await.unwrap();
    assert_eq!(Reply::read(response).await.body, "answer");
    let seen = std::mem::take(&mut *server.seen.lock().unwrap());
    assert_eq!(seen.len(), 3);
    for request in seen {
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri(), "http://them.example/things?all=1");
        assert_eq!(request.version(), Version::HTTP_2);
        assert_eq!(request.headers().len(), 2);
        assert!(request.headers().get_all("x-part").iter().eq(["one", "two"]));
        assert_eq!(request.extensions().get(), Some(&Tenant(7)));
        let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap();
        assert_eq!(body.to_bytes(), "whole");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_returned_is_whole() {
    let server = Server::refusing(9, &[("retry-after", "1"), ("x-more", "yes")]);
    let response = RetryLayer::new().tries(2).layer(server).oneshot(request()).await.unwrap();
    let reply = Reply::read(response).await;
    assert_eq!((reply.status, &*reply.body), (StatusCode::TOO_MANY_REQUESTS, "answer"));
    assert_eq!((reply.field("retry-after"), reply.field("x-more")), (Some("1"), Some("yes")));
}

#[tokio::test(start_paused = true)]
async fn only_the_requests_that_are_asked_for_are_sent_again() {
    let only_safe = RetryLayer::new().only(|head| head.method().is_safe());
    for (layer, method, status, sends) in [
        (RetryLayer::new(), Method::POST, 200, 2),
        (only_safe.clone(), Method::GET, 200, 2),
        (only_safe, Method::POST, 429, 1),
    ] {
        let server = Server::refusing(1, &[("retry-after", "1")]);
        let mut request = request();
        *request.method_mut() = method;
        let response = layer.layer(server.clone()).oneshot(request).await.unwrap();
        assert_eq!((response.status().as_u16(), server.sends()), (status, sends));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_send_needs_no_copy() {
    #[derive(Debug, Default)]
    struct Counted(Arc<AtomicU32>);
    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(&self.0))
        }
    }
    let refuse =
        async |_: Request<Counted>| Ok::<_, Infallible>(answer(503, &[("retry-after", "1")]));
    let layer = RetryLayer::new();
    let never = layer.clone().only(|_| false);
    for (layer, copies) in [(layer.clone().tries(3), 2), (layer.tries(1), 0), (never, 0)] {
        let body = Counted::default();
        let copied = Arc::clone(&body.0);
        layer.layer(service_fn(refuse)).oneshot(Request::new(body)).await.unwrap();
        assert_eq!(copied.load(Ordering::Relaxed), copies);
    }
}

// Readiness, and dropping.

#[tokio::test(start_paused = true)]
async fn the_service_is_made_ready_before_each_send_and_not_before_the_wait() {
    let server = Server::refusing(1, &[("retry-after", "2")]);
    let mut service = RetryLayer::new().layer(server.clone());
    let mut call = pin!(service.ready().await.unwrap().call(request()));
    assert!(poll(&mut call).is_pending());
    *server.readiness.lock().unwrap() = Poll::Pending;
    advance(2 * SECOND - TICK).await;
    assert!(poll(&mut call).is_pending());
    assert_eq!(server.readied.load(Ordering::Relaxed), 1);
    advance(2 * TICK).await;
    assert!(poll(&mut call).is_pending());
    assert_eq!((server.readied.load(Ordering::Relaxed), server.sends()), (2, 1));
    *server.readiness.lock().unwrap() = Poll::Ready(Ok(()));
    let Poll::Ready(response) = poll(&mut call) else { panic!("it is ready") };
    assert_eq!((response.unwrap().status().as_u16(), server.sends()), (200, 2));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_becoming_ready_comes_through_unchanged() {
    let server = Server::refusing(1, &[("retry-after", "2")]);
    let mut service = RetryLayer::new().layer(server.clone());
    let call = service.ready().await.unwrap().call(request());
    *server.readiness.lock().unwrap() = Poll::Ready(Err(InnerError));
    assert_eq!(call.await.unwrap_err(), InnerError);
    assert_eq!(server.sends(), 1);
    assert_eq!(service.ready().await.unwrap_err(), InnerError);
}

#[tokio::test(start_paused = true)]
async fn one_service_can_be_called_again_while_a_request_waits() {
    let server = Server::refusing(1, &[("retry-after", "2")]);
    let mut service = RetryLayer::new().layer(server.clone());
    let mut first = pin!(service.ready().await.unwrap().call(request()));
    assert!(poll(&mut first).is_pending());
    let second = service.ready().await.unwrap().call(request());
    assert_eq!(second.await.unwrap().status(), 200);
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(server.sends(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_sends_nothing_any_more() {
    // While it is sent, while it waits, and while the service becomes ready.
    for stage in 0..3 {
        let (ran, held) = (Arc::new(AtomicU32::new(0)), Arc::new(()));
        let counter = Arc::clone(&ran);
        let refuse = service_fn(move |request: Request<Full<Bytes>>| {
            counter.fetch_add(1, Ordering::Relaxed);
            async move {
                if stage == 0 {
                    std::future::pending::<()>().await;
                }
                drop(request);
                Ok::<_, Infallible>(answer(429, &[("retry-after", "1")]))
            }
        });
        let mut once = true;
        let ready_once = move || if stage == 2 { std::mem::take(&mut once) } else { true };
        let service = RetryLayer::new().layer(ReadyIf { inner: refuse, ready: ready_once });
        let mut request = request();
        request.extensions_mut().insert(Arc::clone(&held));
        let mut call = Box::pin(service.oneshot(request));
        assert!(poll(&mut call.as_mut()).is_pending());
        advance(SECOND - TICK).await;
        if stage == 2 {
            advance(2 * TICK).await;
        }
        assert!(poll(&mut call.as_mut()).is_pending());
        assert!(Arc::strong_count(&held) > 1);
        drop(call);
        assert_eq!(Arc::strong_count(&held), 1, "the request is gone with its future");
        advance(HOUR).await;
        assert_eq!(ran.load(Ordering::Relaxed), 1, "stage {stage}");
    }
}

/// A service that is ready when the function says so.
#[derive(Clone)]
struct ReadyIf<S, F> {
    inner: S,
    ready: F,
}

impl<S: Service<R>, R, F: FnMut() -> bool> Service<R> for ReadyIf<S, F> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if (self.ready)() { self.inner.poll_ready(cx) } else { Poll::Pending }
    }

    fn call(&mut self, request: R) -> S::Future {
        self.inner.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_returned_is_dropped_before_the_wait() {
    let body = Arc::new(());
    let shared = Arc::clone(&body);
    let refuse = service_fn(move |_: Request<()>| {
        let response = answer(429, &[("retry-after", "1")]).map(|_| Arc::clone(&shared));
        async { Ok::<_, Infallible>(response) }
    });
    let mut service = RetryLayer::new().tries(2).layer(refuse);
    let mut call = pin!(service.ready().await.unwrap().call(Request::new(())));
    // Held here, by the service and its clone, and by the response.
    assert_eq!(Arc::strong_count(&body), 4);
    assert!(poll(&mut call).is_pending());
    assert_eq!(Arc::strong_count(&body), 3);
    let response = call.await.unwrap();
    assert_eq!(response.status(), 429);
}

/// Types that users have to be able to name and to share.
#[tokio::test(start_paused = true)]
async fn layer_service_and_future_are_what_tower_expects() {
    fn shared<T: Clone + std::fmt::Debug + Send + Sync + 'static>(_: &T) {}
    fn sent<T: std::fmt::Debug + Send + Sync>(_: &T) {}
    struct Named {
        layer: RetryLayer,
        service: Retry<Server>,
        future: Pin<Box<ResponseFuture<Server, Full<Bytes>>>>,
    }
    let layer = RetryLayer::new().jitter(SECOND);
    let mut service = layer.layer(Server::refusing(1, &[("retry-after", "1")]));
    shared(&layer);
    shared(&service);
    assert!(!service.get_ref().ready);
    service.get_mut().ready = true;
    let future = Box::pin(service.call(request()));
    sent(&future);
    let mut named = Named { layer, service, future };
    assert_eq!(format!("{:?}", named.future), "ResponseFuture(sent)");
    assert!(poll(&mut named.future.as_mut()).is_pending());
    assert_eq!(format!("{:?}", named.future), "ResponseFuture(waiting)");
    *named.service.get_ref().readiness.lock().unwrap() = Poll::Pending;
    advance(3 * SECOND).await;
    assert!(poll(&mut named.future.as_mut()).is_pending());
    assert_eq!(format!("{:?}", named.future), "ResponseFuture(readying)");
    let policy = "RetryPolicy { tries: 5, max_wait: 30s, jitter: 1s, .. }";
    assert_eq!(format!("{:?}", named.layer), format!("RetryLayer({policy})"));
    assert!(format!("{:?}", named.service).ends_with(&format!("policy: {policy} }}")));
    assert_eq!(named.service.into_inner().sends(), 1);
}

// Both ends.

/// The time of a store, in step with tokio's.
#[derive(Debug)]
struct TokioClock {
    start: Instant,
}

impl TokioClock {
    fn limiter() -> RateLimiter {
        RateLimiter::new(Memory::new().clock(Self { start: Instant::now() }))
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        START + self.start.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn limiter_and_retry_layer_work_together() {
    const TEN: Limit = Limit::new("ten", Quota::token_bucket(10, SECOND));
    let hello = service_fn(async |_: Request<Full<Bytes>>| Ok::<_, Infallible>(answer(200, &[])));
    let server = TokioClock::limiter().layer(TEN).layer(hello);
    // Which request was refused with which wait.
    let refused = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&refused);
    let watched = service_fn(move |mut request: Request<Full<Bytes>>| {
        let (server, log) = (server.clone(), Arc::clone(&log));
        async move {
            let id = request.extensions().get::<usize>().copied().unwrap();
            // Extensions are not sent over a connection.
            request.extensions_mut().clear();
            let response = server.oneshot(request).await?;
            if response.status() == 429 {
                let told = response.headers()["retry-after"].to_str().unwrap();
                log.lock().unwrap().push((id, told.parse::<u32>().unwrap()));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let client = RetryLayer::new().layer(watched);
    let mut calls = JoinSet::new();
    for id in 0..25_usize {
        let client = client.clone();
        let mut request = request();
        request.extensions_mut().insert(id);
        calls.spawn(async move {
            let start = Instant::now();
            let response = client.oneshot(request).await.unwrap();
            (id, response.status(), start.elapsed())
        });
    }
    let answers = calls.join_all().await;
    let refused = refused.lock().unwrap();
    for (id, status, elapsed) in &answers {
        assert_eq!(*status, 200);
        // The client waited exactly once for each refusal.
        let told: u32 =
            refused.iter().filter(|(request, _)| request == id).map(|(_, told)| told).sum();
        assert_took((200, *elapsed), 200, told * SECOND);
    }
    // Ten at once, ten after a second, five after two.
    assert_eq!((answers.len(), refused.len()), (25, 15 + 5));
}

/// What the layer of this limiter refuses, as the retry layer sees it: the longest wait that is too
/// short shows what it was told.
async fn told_in_one_process(layer: RateLimitLayer, clock: &ManualClock) -> (Duration, Reply) {
    let hello = service_fn(async |_: Request<Full<Bytes>>| Ok::<_, Infallible>(answer(200, &[])));
    let server = layer.layer(hello);
    assert_eq!(server.clone().oneshot(request()).await.unwrap().status(), 200);
    clock.advance(Duration::from_micros(1));
    let refused = async |max_wait| {
        let client = RetryLayer::new().max_wait(max_wait).layer(server.clone());
        let mut call = pin!(client.oneshot(request()));
        match poll(&mut call) {
            Poll::Ready(response) => Some(Reply::read(response.unwrap()).await),
            Poll::Pending => None,
        }
    };
    let (mut short, mut long) = (Duration::ZERO, HOUR);
    while long - short > Duration::from_nanos(1) {
        let middle = short + (long - short) / 2;
        match refused(middle).await {
            Some(_) => short = middle,
            None => long = middle,
        }
    }
    (long, refused(short).await.unwrap())
}

/// The wait was rounded up to whole seconds, also where no connection lay in between.
#[tokio::test(start_paused = true)]
async fn in_one_process_the_wait_is_exact_to_the_microsecond() {
    const SEVEN: Limit = Limit::new("seven", Quota::token_bucket(7, SECOND).capacity(1));
    // A token takes 142,857.14 microseconds, and one of them has passed.
    let exact = Duration::from_micros(142_857);
    let sorry = |own: Option<&'static str>| {
        OnRefusal::handler(move |refused| {
            let response = Response::builder().status(refused.status());
            own.into_iter()
                .fold(response, |response, own| response.header("retry-after", own))
                .body("sorry")
                .unwrap()
        })
    };
    let all = [Dialect::Draft11, Dialect::Draft6];
    for (change, wanted) in [
        (None, exact),
        (Some(OnRefusal::plain_text()), exact),
        (Some(sorry(None)), exact),
        // A handler that names a time of its own means that time.
        (Some(sorry(Some("3"))), 3 * SECOND),
    ] {
        let clock = ManualClock::new(START);
        let layer = limiter(&clock).layer(&SEVEN).dialects(all);
        let layer = match change {
            Some(on_refusal) => layer.on_refusal(on_refusal),
            None => limiter(&clock).layer(&SEVEN),
        };
        let (told, reply) = told_in_one_process(layer, &clock).await;
        assert_eq!(told, wanted);
        let seconds = told.as_secs_f64().ceil().to_string();
        assert_eq!(reply.field("retry-after"), Some(&*seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_no_exact_wait_unless_the_request_asks_for_it() {
    const ONE: Limit = Limit::new("one", Quota::token_bucket(1, SECOND));
    let hello = service_fn(async |_: Request<Full<Bytes>>| Ok::<_, Infallible>(answer(200, &[])));
    let server = TokioClock::limiter().layer(ONE).layer(hello);
    let asks = |asks: bool| {
        let mut request = request();
        if asks {
            request.extensions_mut().insert(ExactWait::default());
        }
        server.clone().oneshot(request)
    };
    let exact = |response: Response<_>| response.extensions().get().map(ExactWait::wait);
    assert_eq!(exact(asks(true).await.unwrap()), None, "admitted");
    assert_eq!(exact(asks(false).await.unwrap()), None);
    assert_eq!(exact(asks(true).await.unwrap()), Some(SECOND));
}

#[tokio::test(start_paused = true)]
async fn in_one_process_each_token_is_used_as_soon_as_it_is_there() {
    const TEN: Limit = Limit::new("ten", Quota::token_bucket(10, SECOND));
    let hello = service_fn(async |_: Request<Full<Bytes>>| Ok::<_, Infallible>(answer(200, &[])));
    let mut client = RetryLayer::new().layer(TokioClock::limiter().layer(TEN).layer(hello));
    let start = Instant::now();
    for nth in 0..30_u32 {
        let response = client.ready().await.unwrap().call(request()).await.unwrap();
        let wait = SECOND / 10 * nth.saturating_sub(9);
        let late = start.elapsed().checked_sub(wait).expect("never early");
        assert_eq!(response.status(), 200);
        assert!(late < 2 * TICK, "{nth}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_clients_own_is_waited_for_as_well() {
    const TWO: Limit = Limit::new("two", Quota::token_bucket(2, SECOND));
    let server = Server::refusing(0, &[]);
    let kept = TokioClock::limiter().layer(TWO).layer(server.clone());
    let mut client = RetryLayer::new().layer(kept);
    for _ in 0..6 {
        let response = client.ready().await.unwrap().call(request()).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(server.sends(), 6);
}

/// Over real connections, on which only the time is not real.
#[tokio::test(start_paused = true)]
async fn polite_client_is_always_served_in_the_end() {
    let them = polite_client::them(&TokioClock::limiter()).await.unwrap();
    let answers = polite_client::call_them(them, 5).await;
    for ((status, elapsed), seconds) in answers.into_iter().zip([0, 0, 1, 1, 2]) {
        assert_took((status, elapsed), 200, seconds * SECOND);
    }
}
