//! Keys and costs from the body of a request, for any tower service, over a real server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use futures_util::stream;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use proptest::prelude::*;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::key::{self, Head, KeyExtractor, extension};
use tollgate::middleware::{BufferBody, BufferedBody, buffer_body};
use tollgate::{HOUR, Limit, Quota, RateLimitLayer, RateLimiter};
use tollgate_testing::web::{Reply, grpc_call, send_request, serve};
use tollgate_testing::{START, at_once, limiter, store};
use tower::{Layer, Service, ServiceExt, service_fn};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(2, HOUR));
static ITEMS: Limit = Limit::new("items", Quota::token_bucket(100, HOUR));

const MAX: usize = 1_000;

/// What the closures of these tests find: an e-mail, and a number of items.
#[derive(Clone)]
struct Found {
    email: String,
    items: u64,
}

fn read(_: &Head<'_>, body: &Bytes) -> Result<Found, StatusCode> {
    let body: Value = serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let email = body["email"].as_str().ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
    Ok(Found { email: email.to_owned(), items: body["items"].as_u64().unwrap_or(1) })
}

type Read = fn(&Head<'_>, &Bytes) -> Result<Found, StatusCode>;

fn by_body() -> BufferBody<Read> {
    buffer_body(MAX, read)
}

fn standing_still() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

fn by_email(limiter: &RateLimiter) -> RateLimitLayer {
    limiter.layer(&LOGIN).key(extension(|found: &Found| found.email.clone()))
}

/// Serves a limit inside of this layer; the service answers the body that it gets.
async fn server(layer: BufferBody<Read>, limit: RateLimitLayer) -> SocketAddr {
    let echo = service_fn(async |request: Request<BufferedBody>| {
        Ok::<_, Infallible>(Response::new(Body::new(request.into_body())))
    });
    serve(Router::new().route_service("/", layer.layer(limit.layer(echo)))).await
}

async fn send(server: SocketAddr, body: impl Into<Body>) -> Reply {
    send_request(Request::post(format!("http://{server}/")).body(body.into()).unwrap()).await
}

fn chunked(body: &str) -> Body {
    let bytes: Vec<_> = body.bytes().map(|byte| Ok::<_, Infallible>(vec![byte])).collect();
    Body::from_stream(stream::iter(bytes))
}

#[tokio::test]
async fn a_login_is_limited_by_the_email_in_its_body() {
    let server = server(by_body(), by_email(&standing_still())).await;
    let (alice, bob) = (r#"{"email":"alice"}"#, r#"{"email":"bob"}"#);
    for (body, status) in [(alice, 200), (bob, 200), (alice, 200), (alice, 429), (bob, 200)] {
        let reply = send(server, chunked(body)).await;
        assert_eq!(reply.status, status, "{body}");
        assert!(status != 200 || reply.body == body, "{}", reply.body);
    }
}

#[tokio::test]
async fn a_cost_is_read_from_the_body() {
    let items = |head: &Head<'_>| head.extensions().get::<Found>().unwrap().items;
    let server = server(by_body(), standing_still().layer(&ITEMS).cost_with(items)).await;
    for (items, status) in [(60, 200), (60, 429), (40, 200)] {
        let body = serde_json::json!({ "email": "", "items": items }).to_string();
        assert_eq!(send(server, body).await.status, status, "{items}");
    }
}

#[tokio::test]
async fn a_rejection_is_worded_as_a_refusal_is_and_takes_nothing() {
    let (store, limiter) = store(Memory::new(), &ManualClock::new(START));
    let server = server(by_body(), by_email(&limiter)).await;
    let long = " ".repeat(MAX + 1);
    let (too_large, detail) = (long.as_str(), "the body has more than 1000 bytes");
    for (body, status, title, detail) in [
        (Body::from("{"), 400, "Bad Request", None),
        (Body::empty(), 400, "Bad Request", None),
        (Body::from("{}"), 422, "Unprocessable Entity", None),
        (Body::from(too_large.to_owned()), 413, "Payload Too Large", Some(detail)),
        (chunked(too_large), 413, "Payload Too Large", Some(detail)),
    ] {
        let reply = send(server, body).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.field("content-type"), Some("application/problem+json"));
        assert_eq!(reply.field("cache-control"), Some("no-store"));
        assert_eq!(reply.field("ratelimit"), None);
        let problem: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((&problem["title"], &problem["status"]), (&title.into(), &status.into()));
        assert_eq!(problem.get("detail"), detail.map(Value::from).as_ref());
    }
    assert!(store.is_empty());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_answered_and_takes_nothing() {
    let (store, limiter) = store(Memory::new(), &ManualClock::new(START));
    let server = server(by_body(), by_email(&limiter)).await;
    for rest in ["content-length: 100\r\n\r\n{", "transfer-encoding: chunked\r\n\r\nzz\r\n"] {
        let mut connection = TcpStream::connect(server).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: test\r\n";
        connection.write_all(format!("{head}{rest}").as_bytes()).await.unwrap();
        connection.shutdown().await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains(r#""detail":"the body could not be read""#), "{answer}");
    }
    assert!(store.is_empty());
}

#[tokio::test]
async fn an_optional_body_goes_on_without_a_key_but_not_above_the_bound() {
    let key = extension(|found: &Found| found.email.clone()).or(key::global());
    let server = server(by_body().optional(), standing_still().layer(&LOGIN).key(key)).await;
    for (body, status) in [("{", 200), ("", 200), ("{}", 429), (r#"{"email":"alice"}"#, 200)] {
        let reply = send(server, body).await;
        assert_eq!(reply.status, status, "{body}");
        assert!(status != 200 || reply.body == body);
    }
    assert_eq!(send(server, " ".repeat(MAX + 1)).await.status, 413);
}

#[tokio::test]
async fn rejections_of_head_have_no_body_and_those_of_grpc_a_status_of_grpc() {
    let echo = service_fn(async |_: Request<BufferedBody>| {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let service = by_body().layer(echo);
    let head = Request::head("/").body(Full::<Bytes>::from(" ".repeat(MAX + 1))).unwrap();
    let response = service.clone().oneshot(head).await.unwrap();
    assert!(response.headers().contains_key("content-length"));
    let reply = Reply::read(response).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (413, ""));

    let call = grpc_call("application/grpc", Full::<Bytes>::from(" ".repeat(MAX + 1)));
    assert_eq!(call.version(), Version::HTTP_2);
    let reply = Reply::read(service.oneshot(call).await.unwrap()).await;
    assert_eq!((reply.status.as_u16(), reply.field("grpc-status")), (200, Some("11")));
    let message = Some("Payload Too Large: the body has more than 1000 bytes");
    assert_eq!(reply.field("grpc-message"), message);
}

/// Counts how often it was made ready, and fails the second time.
#[derive(Clone, Debug, Default)]
struct Fickle(Arc<AtomicU32>);

impl Service<Request<BufferedBody>> for Fickle {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<Full<Bytes>>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err("full")),
        }
    }

    fn call(&mut self, request: Request<BufferedBody>) -> Self::Future {
        std::future::ready(Ok(Response::new(Full::new(request.into_body().into_bytes()))))
    }
}

#[tokio::test]
async fn the_inner_service_is_made_ready_for_a_whole_body_only() {
    let fickle = Fickle::default();
    let mut service = by_body().layer(fickle.clone());
    assert!(format!("{service:?}").contains("max_bytes: 1000"));
    for (body, status) in [("{", 400), (r#"{"email":"alice"}"#, 200)] {
        let ready = ServiceExt::<Request<Full<Bytes>>>::ready(&mut service).await.unwrap();
        let response = ready.call(Request::new(Full::<Bytes>::from(body))).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.into_body().into_inner().is_none_or(|_| status == 200));
    }
    assert_eq!(fickle.0.load(Ordering::Relaxed), 1);
    // The error of the inner service stays what it is.
    let error =
        service.clone().oneshot(Request::new(Full::<Bytes>::from(r#"{"email":"alice"}"#))).await;
    assert_eq!(error.unwrap_err(), "full");
    service.get_mut().0.store(0, Ordering::Relaxed);
    assert_eq!(service.get_ref().0.load(Ordering::Relaxed), 0);
    assert_eq!(service.into_inner().0.load(Ordering::Relaxed), 0);
}

proptest! {
    /// Whatever the frames are, the closure and the service see the same bytes, and the service the
    /// trailers; above the bound, they see nothing.
    #[test]
    fn the_split_into_frames_changes_nothing(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12),
        has_trailers in any::<bool>(),
        max in 0_usize..300,
    ) {
        let whole = frames.concat();
        let frames = frames.into_iter().map(|frame| Frame::data(Bytes::from(frame)));
        let mut frames: Vec<_> = frames.map(Ok::<_, Infallible>).collect();
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        if has_trailers {
            frames.push(Ok(Frame::trailers(trailers.clone())));
        }
        let service = buffer_body(max, |_, body| Ok(body.clone())).layer(service_fn(
            async |request: Request<BufferedBody>| {
                let read = request.extensions().get::<Bytes>().cloned();
                let (exact, is_end) = {
                    let body: &dyn http_body::Body<Data = Bytes, Error = Infallible> = request.body();
                    (body.size_hint().exact(), body.is_end_stream())
                };
                let body = request.into_body().collect().await?;
                let mut response = Response::new(Full::<Bytes>::from(""));
                let trailers = body.trailers().cloned();
                response.extensions_mut().insert((read, exact, is_end, trailers, body.to_bytes()));
                Ok::<_, Infallible>(response)
            },
        ));
        let body = StreamBody::new(stream::iter(frames));
        let response = at_once(service.oneshot(Request::new(body))).unwrap();
        let is_end = whole.is_empty() && !has_trailers;
        let length = Some(whole.len() as u64);
        let whole = Bytes::from(whole);
        let trailers = has_trailers.then_some(trailers);
        let is_within = whole.len() <= max;
        let wanted = is_within.then_some((Some(whole.clone()), length, is_end, trailers, whole));
        prop_assert_eq!(response.status().as_u16(), if is_within { 200 } else { 413 });
        prop_assert_eq!(response.extensions().get().cloned(), wanted);
    }
}
