//! The layer, driven without a server: readiness, errors, bodies, keys, and stores that are slow
//! or broken.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Notify;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{ClientIp, Extracted, Head, Key, KeyExtractor, extension, from_fn, header};
use tollgate::middleware::{ResponseBody, ResponseFuture};
use tollgate::{
    Limit, MINUTE, OnFailure, Quota, RateLimit, RateLimitLayer, RateLimited, RateLimiter, Rule,
};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, Service, ServiceExt};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

/// Answers with a body and counts how often it ran; panics if called without being made ready.
#[derive(Debug, Default)]
struct Strict {
    ready: bool,
    ran: Arc<AtomicU32>,
}

impl Strict {
    fn counted() -> (Self, Arc<AtomicU32>) {
        let ran = Arc::new(AtomicU32::new(0));
        (Self { ready: false, ran: Arc::clone(&ran) }, ran)
    }
}

/// Readiness is reserved by one service; its clone has to be made ready itself.
impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, ran: Arc::clone(&self.ran) }
    }
}

#[derive(Debug, PartialEq)]
struct InnerError;

impl<B> Service<Request<B>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = InnerError;
    type Future = std::future::Ready<Result<Self::Response, InnerError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        assert!(self.ready, "called without being made ready");
        self.ready = false;
        self.ran.fetch_add(1, Ordering::Relaxed);
        std::future::ready(match request.headers().contains_key("x-fail") {
            true => Err(InnerError),
            false => Ok(Response::new(Full::from("hello"))),
        })
    }
}

async fn ready<S: Service<Request<()>, Error: std::fmt::Debug>>(service: &mut S) -> &mut S {
    service.ready().await.unwrap()
}

fn request() -> Request<()> {
    Request::new(())
}

fn from_user(user: &[u8]) -> Request<()> {
    let user = http::HeaderValue::from_bytes(user).unwrap();
    Request::builder().header("x-user", user).body(()).unwrap()
}

async fn reply<S, B, R>(service: &S, request: Request<B>) -> Reply
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: std::fmt::Debug,
    R: http_body::Body,
    R::Error: std::fmt::Debug,
{
    Reply::read(service.clone().oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn a_refused_request_never_reaches_the_inner_service() {
    let (inner, ran) = Strict::counted();
    let service = limiter(&ManualClock::new(START)).layer(&TWO).layer(inner);
    for (status, body) in [(200, "hello"), (200, "hello")] {
        let reply = reply(&service, request()).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (status, body));
    }
    assert_eq!(reply(&service, request()).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_inner_error_comes_through_unchanged() {
    let service = limiter(&ManualClock::new(START)).layer(&TWO).layer(Strict::default());
    let failing = Request::builder().header("x-fail", "").body(()).unwrap();
    let error: InnerError = service.oneshot(failing).await.unwrap_err();
    assert_eq!(error, InnerError);
}

#[tokio::test]
async fn the_service_that_was_made_ready_is_the_one_that_is_called() {
    for slow in [false, true] {
        let limiter = match slow {
            false => RateLimiter::in_memory(),
            true => RateLimiter::new(Slow::default()),
        };
        let (inner, ran) = Strict::counted();
        let mut service = limiter.layer(&TWO).layer(inner);
        for _ in 0..3 {
            let response = ready(&mut service).await.call(request());
            assert!(response.await.is_ok(), "slow: {slow}");
        }
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }
}

/// A service with a bounded number of slots, like a limit on concurrent requests: its clones wait
/// for the slot that one of them has reserved until that one is called or dropped.
#[derive(Debug)]
struct Scarce {
    free: Arc<AtomicU32>,
    has_slot: bool,
}

impl Clone for Scarce {
    fn clone(&self) -> Self {
        Self { free: Arc::clone(&self.free), has_slot: false }
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        self.free.fetch_add(u32::from(self.has_slot), Ordering::Relaxed);
    }
}

impl Service<Request<()>> for Scarce {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let free = self.free.load(Ordering::Relaxed);
        if !self.has_slot && free == 0 {
            return Poll::Pending;
        }
        self.free.store(free - u32::from(!self.has_slot), Ordering::Relaxed);
        self.has_slot = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.has_slot), "called without being made ready");
        self.free.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::default()))
    }
}

/// After a refusal, the service kept the slot that it had reserved for the request, so no clone of
/// it became ready again.
#[tokio::test]
async fn the_slot_reserved_for_a_refused_request_is_released() {
    let clock = ManualClock::new(START);
    let by_user = Rule::new(&TWO).key(header("x-user"));
    let layers: [(&str, RateLimitLayer); 6] = [
        ("refused", limiter(&clock).layer(&TWO).cost(2)),
        ("too large", limiter(&clock).layer(&TWO).cost(3)),
        ("no key", limiter(&clock).layer(by_user)),
        ("broken", RateLimiter::new(Broken).layer(&TWO)),
        ("refused later", RateLimiter::new(Slow::default()).layer(&TWO).cost(2)),
        ("refused, with a queue", limiter(&clock).layer(&TWO).cost(2).queue(MINUTE / 2)),
    ];
    for (name, layer) in layers {
        let free = Arc::new(AtomicU32::new(1));
        let mut first = layer.layer(Scarce { free: Arc::clone(&free), has_slot: false });
        let mut second = first.clone();
        let mut refused = 0;
        for _ in 0..2 {
            let response = ready(&mut first).await.call(request()).await.unwrap();
            refused += u32::from(response.status() != StatusCode::OK);
        }
        assert!(refused > 0, "{name}");
        assert_eq!(free.load(Ordering::Relaxed), 1, "{name}");
        let is_ready = second.poll_ready(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(is_ready.is_ready(), "{name}");
    }
}

/// A service without a destructor, whose clones are counted.
struct Plain(&'static AtomicU32);

impl Clone for Plain {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Service<Request<()>> for Plain {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::default()))
    }
}

/// Each refusal cloned the service, also one that gives nothing back when it is dropped.
#[tokio::test]
async fn a_refusal_clones_no_service_that_has_nothing_to_release() {
    static CLONES: AtomicU32 = AtomicU32::new(0);
    let mut service = limiter(&ManualClock::new(START)).layer(&TWO).cost(2).layer(Plain(&CLONES));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(ready(&mut service).await.call(request()).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(CLONES.load(Ordering::Relaxed), 0);
}

/// Several calls may be under way on one service while the store takes its time.
#[tokio::test]
async fn a_slow_store_answers_each_call_for_itself() {
    let store = Slow { hold: Some(Arc::default()), ..Slow::default() };
    let gate = store.hold.clone().unwrap();
    let (inner, ran) = Strict::counted();
    let mut service = RateLimiter::new(store).layer(&TWO).layer(inner);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let call = ready(&mut service).await.call(request());
        waiting.push(tokio::spawn(call));
        tokio::task::yield_now().await;
    }
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    gate.notify_waiters();
    let mut statuses = Vec::new();
    for call in waiting {
        statuses.push(call.await.unwrap().unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn a_call_that_is_dropped_while_the_store_decides_never_runs() {
    let store = Slow { hold: Some(Arc::default()), ..Slow::default() };
    let gate = store.hold.clone().unwrap();
    let (inner, ran) = Strict::counted();
    let held = Arc::new(());
    let service = RateLimiter::new(store).layer(&TWO).layer(inner);
    let mut call = Box::pin(service.oneshot(Request::new(Arc::clone(&held))));
    let poll = call.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(poll.is_pending());
    drop(call);
    gate.notify_waiters();
    tokio::task::yield_now().await;
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert_eq!(Arc::strong_count(&held), 1, "the request is gone with its future");
}

/// A body with chunks that are not `Bytes`, and one that is no body at all.
#[tokio::test]
async fn any_body_type_works() {
    #[derive(Debug)]
    struct Chunk(io::Cursor<Vec<u8>>);
    impl bytes::Buf for Chunk {
        fn remaining(&self) -> usize {
            self.0.remaining()
        }
        fn chunk(&self) -> &[u8] {
            self.0.chunk()
        }
        fn advance(&mut self, count: usize) {
            self.0.advance(count);
        }
    }
    impl From<Bytes> for Chunk {
        fn from(bytes: Bytes) -> Self {
            Self(io::Cursor::new(bytes.into()))
        }
    }
    let body = move || Full::new(Chunk(io::Cursor::new(b"chunk".to_vec())));
    let inner = tower::service_fn(move |_: Request<u8>| {
        let response = Response::new(body());
        async { Ok::<_, Infallible>(response) }
    });
    let service = limiter(&ManualClock::new(START)).layer(&TWO).cost(2).layer(inner);
    assert_eq!(reply(&service, Request::new(1)).await.body, "chunk");
    assert!(reply(&service, Request::new(1)).await.body.contains("Quota Exceeded"));

    let inner = tower::service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(17)));
    let service = limiter(&ManualClock::new(START)).layer(&TWO).cost(2).layer(inner);
    let response = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(response.into_body().into_inner(), Some(17));
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!(response.into_body().into_inner(), None);
}

#[tokio::test]
async fn the_size_of_a_body_is_known_as_before() {
    use http_body::Body;
    let service = limiter(&ManualClock::new(START)).layer(&TWO).cost(2).layer(Strict::default());
    let admitted = service.clone().oneshot(request()).await.unwrap().into_body();
    assert_eq!((admitted.size_hint().exact(), admitted.is_end_stream()), (Some(5), false));
    let mut refused = service.oneshot(request()).await.unwrap().into_body();
    assert_eq!((refused.size_hint().exact(), refused.is_end_stream()), (Some(139), false));
    let frame = http_body_util::BodyExt::frame(&mut refused).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap().len(), 139);
    assert_eq!((refused.size_hint().exact(), refused.is_end_stream()), (Some(0), true));
}

#[tokio::test]
async fn a_missing_key_is_refused_by_default() {
    let limiter = limiter(&ManualClock::new(START));
    let by_user = || Rule::new(&TWO).key(header("x-user")).cost(2);
    let statuses = async |rule: Rule| {
        let (inner, ran) = Strict::counted();
        let service = limiter.layer(rule).layer(inner);
        let replies = [reply(&service, request()).await, reply(&service, request()).await];
        let told = |body: &str| body.contains("x-user") == cfg!(debug_assertions);
        assert!(replies.iter().all(|reply| reply.status != 400 || told(&reply.body)));
        (replies.map(|reply| reply.status.as_u16()), ran.load(Ordering::Relaxed))
    };
    assert_eq!(statuses(by_user()).await, ([400, 400], 0));
    let unauthorized = StatusCode::UNAUTHORIZED;
    assert_eq!(statuses(by_user().missing_key(unauthorized)).await, ([401, 401], 0));
    assert_eq!(statuses(by_user().missing_key_exempt()).await, ([200, 200], 2));
    assert_eq!(statuses(by_user().missing_key_shared()).await, ([200, 429], 1));
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_the_clients_fault() {
    let rule = Rule::new(&TWO).key(header("x-user")).missing_key_exempt();
    let (inner, ran) = Strict::counted();
    let service = limiter(&ManualClock::new(START)).layer(rule).layer(inner);
    let twice = Request::builder().header("x-user", "a").header("x-user", "b").body(()).unwrap();
    let long = "u".repeat(64 * 1024);
    for bad in [from_user(b"\xfftr"), from_user(long.as_bytes()), from_user(b""), twice] {
        let reply = reply(&service, bad).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert_eq!(reply.body, "{\"title\":\"Bad Request\",\"status\":400}");
        assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    }
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert_eq!(reply(&service, from_user(b"alice")).await.status, 200);
}

#[tokio::test]
async fn keys_come_from_wherever_the_extractor_looks() {
    #[derive(Clone)]
    struct Tenant(u64);
    let limiter = limiter(&ManualClock::new(START));
    let ask = async |extractor: Arc<dyn KeyExtractor>, requests: Vec<Request<()>>| {
        // Each extractor has a limit of its own, so that none sees another's buckets.
        static NTH: AtomicU32 = AtomicU32::new(0);
        let name = format!("limit {}", NTH.fetch_add(1, Ordering::Relaxed));
        let limit = Limit::try_new(name, Quota::token_bucket(1, MINUTE)).unwrap();
        let key = from_fn(move |head| extractor.extract(head));
        let service = limiter.layer(limit).key(key).layer(Strict::default());
        let mut statuses = Vec::new();
        for request in requests {
            statuses.push(reply(&service, request).await.status.as_u16());
        }
        statuses
    };
    let with = |tenant: u64, user: &str| {
        let mut request = from_user(user.as_bytes());
        request.extensions_mut().insert(Tenant(tenant));
        request
    };

    let by_tenant = extension(|tenant: &Tenant| tenant.0);
    let requests = vec![with(1, "a"), with(1, "b"), with(2, "a"), from_user(b"a")];
    assert_eq!(ask(Arc::new(by_tenant.clone()), requests).await, [200, 429, 200, 500]);

    let both = (by_tenant.clone(), header("x-user"));
    let requests = vec![with(1, "a"), with(1, "b"), with(1, "a"), with(2, "a"), with(12, "")];
    assert_eq!(ask(Arc::new(both), requests).await, [200, 200, 429, 200, 400]);

    // One part is missing and another is invalid. An invalid key must not count as a missing one,
    // which `missing_key` may exempt.
    let both = (header("x-tenant"), header("x-user"));
    assert_eq!(ask(Arc::new(both), vec![from_user(b"")]).await, [400]);
    let both = (header("x-user"), header("x-tenant"));
    assert_eq!(ask(Arc::new(both), vec![from_user(b"")]).await, [400]);

    let either = by_tenant.or(header("x-user"));
    let requests = vec![with(1, "a"), with(1, "b"), from_user(b"1"), from_user(b"1"), request()];
    assert_eq!(ask(Arc::new(either), requests).await, [200, 429, 200, 429, 400]);

    // A session that is named like a user is not that user.
    let either = header("x-user").or(header("x-session"));
    let session = || Request::builder().header("x-session", "alice").body(()).unwrap();
    let requests = vec![from_user(b"alice"), session(), session(), from_user(b"alice")];
    assert_eq!(ask(Arc::new(either), requests).await, [200, 200, 429, 429]);

    // Exempt if any part says so, though another has no key.
    let exempt = from_fn(|_| Extracted::Exempt);
    assert_eq!(ask(Arc::new((header("x-user"), exempt)), vec![request()]).await, [200]);
    let exempt = from_fn(|head| match head.headers().get("x-user") {
        Some(_) => Some(Extracted::Key(Key::from("users"))),
        None => Some(Extracted::Exempt),
    });
    let requests = vec![request(), request(), from_user(b"a"), from_user(b"b")];
    assert_eq!(ask(Arc::new((exempt, header("x-user"))), requests).await, [200, 200, 200, 200]);
    assert_eq!(ask(Arc::new(ClientIp::peer()), vec![request()]).await, [500]);
}

#[tokio::test]
async fn a_store_that_fails_admits_no_request_by_default() {
    let limiter = RateLimiter::new(Broken);
    let (inner, ran) = Strict::counted();
    let refusing = limiter.layer(&TWO).layer(inner.clone());
    let refused = reply(&refusing, request()).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(refused.body, "{\"title\":\"Service Unavailable\",\"status\":503}");
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    let admitting = limiter.layer(&TWO).on_failure(OnFailure::Admit).layer(inner);
    let admitted = reply(&admitting, request()).await;
    assert_eq!((admitted.status.as_u16(), admitted.field("ratelimit")), (200, None));
}

#[tokio::test]
async fn a_handler_returns_a_refusal_by_the_question_mark() {
    use axum::Router;
    use axum::routing::get;
    let limiter = limiter(&ManualClock::new(START));
    let handler =
        async move |costs: axum::extract::Path<u64>| -> Result<&'static str, RateLimited> {
            limiter.limit(&TWO).cost(costs.0).await?;
            Ok("done")
        };
    let broken = async || -> Result<&'static str, RateLimited> {
        RateLimiter::new(Broken).limit(&TWO).await?;
        Ok("done")
    };
    let app = Router::new().route("/cost/{cost}", get(handler)).route("/broken", get(broken));
    let get = async |path: &str| {
        let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
        reply(&app.clone(), request).await
    };
    assert_eq!(get("/cost/2").await.status, 200);
    let refused = get("/cost/1").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("retry-after"), Some("30"));
    assert_eq!(refused.field("ratelimit-policy"), Some("\"two\";q=2;w=60"));
    assert_eq!(refused.field("ratelimit"), Some("\"two\";r=0;t=30"));
    assert_eq!(refused.field("cache-control"), Some("no-store"));
    let never = get("/cost/3").await;
    assert_eq!((never.status.as_u16(), never.field("retry-after")), (413, None));
    let broken = get("/broken").await;
    assert_eq!((broken.status.as_u16(), broken.field("retry-after")), (503, Some("1")));
}

/// The layer took an answer that lacked its charge for an admission.
#[tokio::test]
async fn an_empty_answer_of_the_store_admits_no_request() {
    #[derive(Debug)]
    struct Silent;
    impl Backend for Silent {
        fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
            Answer::Ready(Ok(Applied::many(START, Vec::new())))
        }
        fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
            Broken::fail()
        }
        fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
            Answer::Ready(Ok(()))
        }
    }
    let limiter = RateLimiter::new(Silent);
    let service = limiter.layer(&TWO).layer(Strict::default());
    assert_eq!(reply(&service, request()).await.status, 503);
    let error = limiter.limit(&TWO).await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_timeout());
}

/// Fields that the inner service sends on several lines, or empty, were lost or made unreadable.
#[tokio::test]
async fn members_of_the_inner_service_are_all_kept() {
    let inner = tower::service_fn(async |_: Request<()>| {
        let lines = ["\"a\";r=1;t=1", "", " ", "\"b\";r=2;t=2"];
        let mut response = Response::builder();
        for line in lines {
            response = response.header("ratelimit", line);
        }
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let service = limiter(&ManualClock::new(START)).layer(&TWO).layer(inner);
    let response = service.oneshot(request()).await.unwrap();
    let lines: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(lines, ["\"two\";r=1;t=30, \"a\";r=1;t=1, \"b\";r=2;t=2"]);
}

#[test]
fn addresses_make_the_keys_of_the_vectors() {
    let key_of = |address: &str, prefix: u8| {
        let mut request = request();
        request.extensions_mut().insert(address.parse::<std::net::SocketAddr>().unwrap());
        let head = tollgate::key::Head::new(&request);
        match ClientIp::peer().ipv6_prefix(prefix).extract(&head) {
            Ok(Extracted::Key(key)) => key.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for (address, by_56, by_64) in [
        ("[::ffff:1.2.3.4]:80", "1.2.3.4", "1.2.3.4"),
        ("[::ffff:102:304]:80", "1.2.3.4", "1.2.3.4"),
        ("[2001:db8:1234:56ff::9]:80", "2001:db8:1234:5600::/56", "2001:db8:1234:56ff::/64"),
        ("[2001:db8:1234:5700::9]:80", "2001:db8:1234:5700::/56", "2001:db8:1234:5700::/64"),
        ("[64:ff9b::1.2.3.4]:80", "1.2.3.4", "1.2.3.4"),
        ("[fe80::1%7]:80", "fe80::/56", "fe80::/64"),
        ("203.0.113.7:5123", "203.0.113.7", "203.0.113.7"),
    ] {
        assert_eq!((key_of(address, 56).as_str(), key_of(address, 64).as_str()), (by_56, by_64));
    }
    assert_eq!(key_of("[2001:db8::1]:80", 128), "2001:db8::1");
    assert_eq!(key_of("[2001:db8::1]:80", 255), "2001:db8::1");
    assert_eq!(key_of("[2001:db8::1]:80", 0), "::/0");
}

#[test]
fn a_mocked_address_counts_only_without_a_real_one() {
    use axum::extract::ConnectInfo;
    use axum::extract::connect_info::MockConnectInfo;
    let address = |text: &str| text.parse::<std::net::SocketAddr>().unwrap();
    let mut request = http::Request::new(());
    let key = |request: &http::Request<()>| ClientIp::peer().extract(&Head::new(request)).unwrap();
    let is = |text: &str| Extracted::Key(Key::from(text.parse::<std::net::IpAddr>().unwrap()));
    request.extensions_mut().insert(address("192.0.2.1:1"));
    assert_eq!(key(&request), is("192.0.2.1"));
    request.extensions_mut().insert(MockConnectInfo(address("192.0.2.2:1")));
    assert_eq!(key(&request), is("192.0.2.2"));
    request.extensions_mut().insert(ConnectInfo(address("192.0.2.3:1")));
    assert_eq!(key(&request), is("192.0.2.3"));
}

#[test]
fn a_header_is_a_key_up_to_1024_bytes() {
    let key = |len| {
        let request = http::Request::builder().header("x-user", "u".repeat(len)).body(()).unwrap();
        header("x-user").extract(&Head::new(&request)).is_ok()
    };
    assert_eq!([key(1_024), key(1_025)], [true, false]);
}

#[test]
fn a_key_that_cannot_be_used_is_not_replaced_by_another() {
    let request =
        http::Request::builder().header("x-user", "").header("x-session", "s").body(()).unwrap();
    let either = header("x-user").or(header("x-session"));
    assert!(!either.extract(&Head::new(&request)).unwrap_err().is_missing());
}

#[test]
fn without_fields_a_cost_that_is_too_large_sends_none_either() {
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).cost(3).dialects(Dialect::None);
    let response = at_once(layer.layer(Strict::default()).oneshot(Request::new(()))).unwrap();
    assert_eq!(response.status(), 413);
    assert!(!response.headers().contains_key("ratelimit-policy"));
}

#[test]
fn a_handler_sends_the_policy_of_a_cost_that_is_too_large() {
    use axum::response::IntoResponse;
    let limiter = limiter(&ManualClock::new(START));
    let error = at_once(limiter.limit(&TWO).cost(3)).unwrap_err();
    let response = error.into_response();
    assert_eq!(response.status(), 413);
    assert_eq!(response.headers()["ratelimit-policy"], "\"two\";q=2;w=60");
    assert!(!response.headers().contains_key("retry-after"));
}

/// Types that users have to be able to name and to share.
#[test]
fn layer_service_and_future_are_what_tower_expects() {
    fn shared<T: Clone + std::fmt::Debug + Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send>(_: &T) {}
    struct Named {
        _layer: RateLimitLayer,
        _service: RateLimit<Strict>,
        future: Pin<Box<ResponseFuture<Strict, ()>>>,
        body: Option<ResponseBody<Full<Bytes>>>,
    }
    let layer = limiter(&ManualClock::new(START)).layer(&TWO);
    let mut service = layer.layer(Strict { ready: true, ..Strict::default() });
    shared(&layer);
    shared(&service);
    assert!(service.get_ref().ready);
    service.get_mut().ran.store(7, Ordering::Relaxed);
    assert_eq!(service.get_ref().ran.load(Ordering::Relaxed), 7);
    let future = Box::pin(service.call(request()));
    sent(&future);
    let mut named = Named { _layer: layer, _service: service, future, body: None };
    named.body = Some(at_once(&mut named.future).unwrap().into_body());
    assert!(named.body.is_some_and(|body| body.into_inner().is_some()));
    assert_eq!(
        format!("{:?}", named._layer),
        "RateLimitLayer(Rules { first: Rule { limit: \"two\", quota: 2 per minute, chosen: false, \
         missing_key: None, .. }, rest: [], settings: LayerSettings { style: \
         ResponseStyle { dialects: [Draft11], on_refusal: OnRefusal(problem details), retry_after: \
         Seconds, too_large: None }, partition_key: None, on_failure: Refuse, queue: None, jitter: 0ns, settles: false, refunds_dropped: false, \
         exposes: false, read_on: ReadOn { bytes: 16777216, time: 10s, at_once: 100 }, \
         foreign_fields: Keep } })"
    );
    assert!(!named._service.into_inner().ready);
}

/// A memory store that answers later: at once, or when it is let go on.
#[derive(Debug, Default)]
struct Slow {
    memory: Memory,
    hold: Option<Arc<Notify>>,
}

impl Slow {
    fn later<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        let hold = self.hold.clone();
        Answer::pending(async move {
            match hold {
                Some(hold) => hold.notified().await,
                None => tokio::task::yield_now().await,
            }
            answer.wait().await
        })
    }
}

impl Backend for Slow {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.later(self.memory.apply(charges))
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.later(self.memory.adjust(adjustments))
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.later(self.memory.reset(ids))
    }
}

/// A store that cannot be reached.
#[derive(Debug)]
struct Broken;

impl Broken {
    fn fail<T>() -> Answer<T> {
        let cause = io::Error::from(io::ErrorKind::ConnectionRefused);
        Answer::Ready(Err(BackendError::unavailable("broken", cause)))
    }
}

impl Backend for Broken {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        Self::fail()
    }
    fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
        Self::fail()
    }
    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        Self::fail()
    }
}
