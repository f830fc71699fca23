//! Keys and costs from the body of a request, by extractors of axum, over a real server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, FromRequest, RawForm, Request};
use axum::middleware::map_request;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::key::{self, KeyExtractor, extension};
use tollgate::routes::extract_body;
use tollgate::{HOUR, Limit, Quota, RateLimitLayer, RateLimiter};
use tollgate_testing::web::{Reply, read_to, send_request, serve};
use tollgate_testing::{START, at_once, limiter, store};
use tower::{Layer, Service, ServiceExt};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(2, HOUR));
static ITEMS: Limit = Limit::new("items", Quota::token_bucket(100, HOUR));

const MAX: usize = 1_000;

#[derive(Clone, Debug, Deserialize)]
struct Login {
    email: String,
}

fn standing_still() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

fn by_email(limiter: &RateLimiter) -> RateLimitLayer {
    limiter.layer(&LOGIN).key(extension(|login: &Login| login.email.clone()))
}

/// The handler answers the body that it has read.
fn echo() -> Router {
    Router::new().route("/", post(async |body: Bytes| body))
}

fn logins(limiter: &RateLimiter) -> Router {
    echo().layer(by_email(limiter)).layer(extract_body(MAX, |Json(login): Json<Login>| login))
}

fn request(server: SocketAddr, content_type: &str, body: impl Into<Body>) -> Request {
    let request = Request::post(format!("http://{server}/")).header("content-type", content_type);
    request.body(body.into()).unwrap()
}

async fn json(server: SocketAddr, body: impl Into<Body>) -> Reply {
    send_request(request(server, "application/json", body)).await
}

/// A body that a client sends in these chunks, without `Content-Length`.
fn chunked(chunks: impl IntoIterator<Item = Vec<u8>, IntoIter: Send + 'static>) -> Body {
    Body::from_stream(stream::iter(chunks.into_iter().map(Ok::<_, Infallible>)))
}

fn login(email: &str) -> String {
    format!(r#"{{"email":"{email}","password":"correct horse"}}"#)
}

/// A login that is exactly this long.
fn login_of_length(len: usize) -> String {
    let body = login("alice");
    let blanks = " ".repeat(len - body.len());
    body + &blanks
}

#[tokio::test]
async fn a_login_is_limited_by_the_email_in_its_body() {
    let server = serve(logins(&standing_still())).await;
    for (email, left) in [("alice", 1), ("alice", 0), ("bob", 1)] {
        let reply = json(server, login(email)).await;
        assert_eq!((reply.status.as_u16(), reply.body), (200, login(email)));
        let told = reply.headers["ratelimit"].to_str().unwrap();
        assert!(told.starts_with(&format!("\"login\";r={left};")), "{told}");
    }
    let refused = json(server, login("alice")).await;
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, Some("1800")));
    assert_eq!(json(server, login("bob")).await.status, 200);
}

#[tokio::test]
async fn a_cost_is_read_from_the_body() {
    #[derive(Clone, Deserialize)]
    struct Order {
        items: Vec<u64>,
    }

    let limit = standing_still()
        .layer(&ITEMS)
        .cost_with(|head| head.extensions().get::<Order>().unwrap().items.len() as u64);
    let app = echo().layer(limit).layer(extract_body(MAX, |Json(order): Json<Order>| order));
    let server = serve(app).await;
    for (items, status) in [(60, 200), (60, 429), (40, 200), (1, 429)] {
        let body = serde_json::json!({ "items": vec![1; items] }).to_string();
        assert_eq!(json(server, body).await.status, status, "{items}");
    }
}

#[tokio::test]
async fn a_form_has_a_key_as_well() {
    #[derive(Clone)]
    struct Form(Bytes);

    let limit =
        standing_still().layer(&LOGIN).key(extension(|form: &Form| key::Key::from(&*form.0)));
    let app = echo().layer(limit).layer(extract_body(MAX, |RawForm(form): RawForm| Form(form)));
    let server = serve(app).await;
    let form = "application/x-www-form-urlencoded";
    for (body, status) in [("email=a", 200), ("email=a", 200), ("email=a", 429), ("email=b", 200)] {
        let reply = send_request(request(server, form, body)).await;
        assert_eq!(reply.status, status, "{body}");
        assert!(status != 200 || reply.body == body, "{}", reply.body);
    }
    assert_eq!(json(server, "{}").await.status, 415);
}

/// The layer answers as the same extractor in a handler does, and the limit takes nothing.
#[tokio::test]
async fn rejections_are_those_of_axum() {
    let (store, limiter) = store(Memory::new(), &ManualClock::new(START));
    let ours = serve(logins(&limiter)).await;
    let handler = post(async |Json(_): Json<Login>| ());
    let axum = Router::new().route("/", handler).layer(DefaultBodyLimit::max(MAX));
    let axum = serve(axum).await;
    let long = login_of_length(MAX + 1);
    for (content_type, body, status) in [
        ("application/json", "{", 400),
        ("application/json", "", 400),
        ("application/json", "{}", 422),
        ("text/plain", r#"{"email":"alice"}"#, 415),
        ("application/json", &long, 413),
    ] {
        let [ours, axum] =
            [ours, axum].map(|server| send_request(request(server, content_type, body.to_owned())));
        let (ours, axum) = (ours.await, axum.await);
        assert_eq!((ours.status.as_u16(), axum.status.as_u16()), (status, status), "{body}");
        assert_eq!(ours.body, axum.body);
        assert_eq!(ours.field("content-type"), axum.field("content-type"));
        assert_eq!(ours.field("ratelimit"), None);
    }
    assert!(store.is_empty());
}

#[tokio::test]
async fn a_body_just_at_the_bound_is_read() {
    let server = serve(logins(&standing_still())).await;
    let body = login_of_length(MAX);
    let in_two = [&body.as_bytes()[..999], &body.as_bytes()[999..]].map(<[u8]>::to_vec);
    assert_eq!(json(server, body.clone()).await.body, body);
    assert_eq!(json(server, chunked(in_two)).await.body, body);
    for too_long in [Body::from(login_of_length(MAX + 1)), chunked([vec![b' '; MAX], vec![b' ']])] {
        let reply = json(server, too_long).await;
        let text = "Failed to buffer the request body: length limit exceeded";
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (413, text));
    }
    // Of a bound of zero, an empty body is just at the bound.
    let app = echo().layer(extract_body(0, |body: Bytes| body));
    let server = serve(app).await;
    assert_eq!(
        (json(server, "").await.status, json(server, "1").await.status.as_u16()),
        (StatusCode::OK, 413)
    );
}

/// The bound of axum, 2 MB by default, must not apply to the copy: `max_bytes` allows more.
#[tokio::test]
async fn a_bound_above_that_of_axum_holds_in_the_layer() {
    let body = vec![b'x'; 2_200_000];
    let length = async |body: Body| body.collect().await.unwrap().to_bytes().len().to_string();
    let app = Router::new().route("/", post(length)).route("/bytes", post(async |_: Bytes| ()));
    let app = app.layer(extract_body(2_500_000, |body: Bytes| body.len()));
    let ask = async |path: &str| {
        let request = Request::post(path).body(Body::from(body.clone())).unwrap();
        let Ok(response) = app.clone().oneshot(request).await;
        Reply::read(response).await
    };
    assert_eq!(ask("/").await.body, "2200000");
    // The handler keeps to its own bound.
    assert_eq!(ask("/bytes").await.status, 413);
}

/// The client waits for `100 Continue`, and must not be asked for a body that is not read.
#[tokio::test]
async fn a_length_above_the_bound_is_answered_before_the_body_comes() {
    let server = serve(logins(&standing_still())).await;
    let mut connection = TcpStream::connect(server).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                expect: 100-continue\r\ncontent-length: 1001\r\n\r\n";
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = read_to(&mut connection, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("length limit exceeded"), "one answer: {answer}");
}

#[tokio::test]
async fn a_client_that_expects_it_is_asked_for_its_body_once() {
    let server = serve(logins(&standing_still())).await;
    let mut connection = TcpStream::connect(server).await.unwrap();
    let body = login("alice");
    let head = format!(
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_to(&mut connection, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    connection.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&body), "{answer}");
}

/// What is above the bound is answered as soon as it has come, though the body has no end.
#[tokio::test]
async fn an_endless_body_is_answered_at_the_bound() {
    let server = serve(logins(&standing_still())).await;
    let mut connection = TcpStream::connect(server).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n3e9\r\n";
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.write_all(&[b' '; MAX + 1]).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// Tells by its end that the server has dropped the body of a request.
struct Guarded {
    body: Body,
    _dropped: mpsc::UnboundedSender<()>,
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[tokio::test]
async fn a_client_that_aborts_in_the_middle_takes_no_token() {
    let (store, limiter) = store(Memory::new(), &ManualClock::new(START));
    let runs = Arc::new(AtomicU32::new(0));
    let (sender, mut bodies) = mpsc::unbounded_channel();
    let counter = Arc::clone(&runs);
    let count = post(async move || counter.fetch_add(1, Ordering::Relaxed).to_string());
    let guard = map_request(move |request: Request| {
        let (dropped, receiver) = mpsc::unbounded_channel();
        sender.send(receiver).unwrap();
        std::future::ready(request.map(|body| Body::new(Guarded { body, _dropped: dropped })))
    });
    let app = Router::new()
        .route("/", count)
        .layer(by_email(&limiter))
        .layer(extract_body(MAX, |Json(login): Json<Login>| login))
        .layer(guard);
    let server = serve(app).await;
    for framing in ["content-length: 100\r\n\r\n", "transfer-encoding: chunked\r\n\r\n64\r\n"] {
        let mut connection = TcpStream::connect(server).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";
        connection
            .write_all(format!("{head}{framing}{}", login("alice")).as_bytes())
            .await
            .unwrap();
        let mut dropped = bodies.recv().await.unwrap();
        drop(connection);
        assert_eq!(dropped.recv().await, None);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    assert!(store.is_empty());
    assert_eq!(json(server, login("alice")).await.body, "0");
}

/// The client can still read, so it gets the answer that axum gives to such a body.
#[tokio::test]
async fn a_body_that_breaks_off_is_answered_as_axum_does() {
    let ours = serve(logins(&standing_still())).await;
    let axum = serve(Router::new().route("/", post(async |Json(_): Json<Login>| ()))).await;
    for rest in ["content-length: 100\r\n\r\n{", "transfer-encoding: chunked\r\n\r\nzz\r\n"] {
        let mut answers = Vec::new();
        for server in [ours, axum] {
            let mut connection = TcpStream::connect(server).await.unwrap();
            let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";
            connection.write_all(format!("{head}{rest}").as_bytes()).await.unwrap();
            connection.shutdown().await.unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.unwrap();
            let text = answer.split_once("\r\n\r\n").map_or("", |(_, text)| text).to_owned();
            answers.push((answer.lines().next().map(str::to_owned), text));
        }
        assert_eq!(answers[0], answers[1], "{rest}");
        let (status, text) = &answers[0];
        assert_eq!(status.as_deref(), Some("HTTP/1.1 400 Bad Request"), "{rest}");
        assert!(text.starts_with("Failed to buffer the request body: "), "{text}");
    }
}

#[tokio::test]
async fn an_error_of_the_body_is_the_rejection_of_axum() {
    let frames = [Ok(Bytes::from("{")), Err(std::io::Error::other("the line is dead"))];
    let body = Body::from_stream(stream::iter(frames));
    let request = Request::post("/").header("content-type", "application/json").body(body).unwrap();
    let Ok(response) = logins(&standing_still()).oneshot(request).await;
    let reply = Reply::read(response).await;
    let text = "Failed to buffer the request body: the line is dead";
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (400, text));
}

#[tokio::test]
async fn an_outer_bound_on_the_body_is_answered_as_too_large() {
    let request = Request::post("/").header("content-type", "application/json");
    let outer = http_body_util::Limited::new(Body::from(login("alice")), 5);
    let request = request.body(outer).unwrap();
    let layer = extract_body(MAX, |Json(login): Json<Login>| login);
    let response = layer.layer(echo()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 413);
}

#[tokio::test]
async fn a_rejection_has_no_body_for_head() {
    for (body, status) in [("{", 400), (&*login_of_length(MAX + 1), 413)] {
        let request = Request::head("/").header("content-type", "application/json");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let Ok(response) = logins(&standing_still()).oneshot(request).await;
        let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let reply = Reply::read(response).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str(), length > 0), (status, "", true));
    }
}

#[tokio::test]
async fn an_optional_body_goes_on_without_a_key_but_not_above_the_bound() {
    let key = extension(|login: &Login| login.email.clone()).or(key::global());
    let app = echo()
        .layer(standing_still().layer(&LOGIN).key(key))
        .layer(extract_body(MAX, |Json(login): Json<Login>| login).optional());
    let server = serve(app).await;
    for (body, status) in [("{", 200), ("", 200), ("{}", 429)] {
        let reply = json(server, body).await;
        assert_eq!(reply.status, status, "{body}");
        assert!(status != 200 || reply.body == body);
    }
    assert_eq!(json(server, login("alice")).await.status, 200);
    assert_eq!(json(server, login_of_length(MAX + 1)).await.status, 413);
}

#[tokio::test]
async fn an_extractor_may_wait_and_use_state() {
    #[derive(Clone, Default)]
    struct Users(Arc<AtomicU32>);
    struct User(u64);

    impl FromRequest<Users> for User {
        type Rejection = Response;

        async fn from_request(request: Request, users: &Users) -> Result<Self, Response> {
            let body = String::from_request(request, users).await;
            let body = body.map_err(IntoResponse::into_response)?;
            tokio::task::yield_now().await;
            users.0.fetch_add(1, Ordering::Relaxed);
            Ok(Self(body.len() as u64))
        }
    }

    #[derive(Clone)]
    struct UserId(u64);

    let users = Users::default();
    let app = echo()
        .layer(standing_still().layer(&LOGIN).key(extension(|user: &UserId| user.0)))
        .layer(extract_body(MAX, |user: User| UserId(user.0)).state(users.clone()));
    let server = serve(app).await;
    for (body, status) in [("abc", 200), ("abd", 200), ("abe", 429), ("a", 200)] {
        assert_eq!(json(server, body).await.status, status, "{body}");
    }
    assert_eq!(users.0.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn the_head_and_the_body_are_extracted_together() {
    #[derive(Clone)]
    struct Tenant(String);

    let tenant = |(headers, Json(login)): (HeaderMap, Json<Login>)| {
        Tenant(format!("{:?} {}", headers.get("x-tenant"), login.email))
    };
    let limit = standing_still().layer(&LOGIN).key(extension(|tenant: &Tenant| tenant.0.clone()));
    let server = serve(echo().layer(limit).layer(extract_body(MAX, tenant))).await;
    for (tenant, status) in [("a", 200), ("a", 200), ("a", 429), ("b", 200)] {
        let mut request = request(server, "application/json", login("alice"));
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        assert_eq!(send_request(request).await.status, status, "{tenant}");
    }
}

/// A body of one frame for each byte, over HTTP/1.1, and over HTTP/2.
#[tokio::test]
async fn a_body_in_many_frames_is_whole_for_the_key_and_the_handler() {
    let server = serve(logins(&standing_still())).await;
    for (version, status) in
        [(http::Version::HTTP_11, 200), (http::Version::HTTP_2, 200), (http::Version::HTTP_11, 429)]
    {
        let bytes = login("alice").into_bytes().into_iter().map(|byte| vec![byte]);
        let mut request = request(server, "application/json", chunked(bytes));
        *request.version_mut() = version;
        let reply = send_request(request).await;
        assert_eq!(reply.status, status);
        assert!(status != 200 || reply.body == login("alice"), "{}", reply.body);
    }
}

/// A client that sends its body slowly must not hold a slot of a `ConcurrencyLimit` meanwhile.
#[tokio::test]
async fn a_body_that_is_still_to_come_holds_no_ready_service() {
    #[derive(Clone, Default)]
    struct Slots(Arc<AtomicU32>);

    impl Service<Request> for Slots {
        type Response = Response;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request) -> Self::Future {
            std::future::ready(Ok(Response::new(request.into_body())))
        }
    }

    let slots = Slots::default();
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let body = Body::from_stream(stream::unfold(receiver, async |mut receiver| {
        Some((receiver.recv().await?, receiver))
    }));
    let mut service = extract_body(MAX, |body: Bytes| body).layer(slots.clone());
    let service = ServiceExt::<Request>::ready(&mut service).await.unwrap();
    let mut call = service.call(Request::new(body));
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut call).poll(&mut context).is_pending());
    assert_eq!(slots.0.load(Ordering::Relaxed), 0);
    sender.send(Ok(Bytes::from("hello"))).await.unwrap();
    drop(sender);
    assert_eq!(Reply::read(call.await.unwrap()).await.body, "hello");
    assert_eq!(slots.0.load(Ordering::Relaxed), 1);
}

proptest! {
    /// Whatever the frames are, the closure and the handler see the same bytes, and the handler the
    /// trailers; above the bound, they see nothing.
    #[test]
    fn the_split_into_frames_changes_nothing(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12),
        has_trailers in any::<bool>(),
        max in 0_usize..300,
    ) {
        let whole = frames.concat();
        let mut stream: Vec<_> =
            frames.into_iter().map(|frame| Ok::<_, Infallible>(Frame::data(Bytes::from(frame)))).collect();
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        if has_trailers {
            stream.push(Ok(Frame::trailers(trailers.clone())));
        }
        let handler = tower::service_fn(async |request: Request| {
            let seen = request.extensions().get::<Bytes>().cloned();
            let exact = request.body().size_hint().exact();
            let body = request.into_body().collect().await.unwrap();
            let trailers = body.trailers().cloned();
            let mut response = Response::new(Body::from(body.to_bytes()));
            response.extensions_mut().insert((seen, exact, trailers));
            Ok::<_, Infallible>(response)
        });
        let service = extract_body(max, |body: Bytes| body).layer(handler);
        let request = Request::builder().method(Method::POST);
        let body = Body::new(StreamBody::new(stream::iter(stream)));
        let response = at_once(service.oneshot(request.body(body).unwrap())).unwrap();
        if whole.len() > max {
            prop_assert_eq!(response.status(), 413);
        } else {
            let seen = response.extensions().get().cloned();
            let wanted = (
                Some(Bytes::from(whole.clone())),
                Some(whole.len() as u64),
                has_trailers.then_some(trailers),
            );
            prop_assert_eq!(seen, Some(wanted));
            prop_assert_eq!(at_once(response.into_body().collect()).unwrap().to_bytes(), whole);
        }
    }
}
