//! Requests that reading a body ahead must not spoil: upgrades, panics, greedy extractors, and
//! several layers that each read it.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequest, Request};
use axum::middleware::map_request;
use axum::routing::{any, post};
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::middleware::buffer_body;
use tollgate::routes::extract_body;
use tollgate::{HOUR, Limit, Quota};
use tollgate_testing::web::{read_to, send_request, serve};
use tollgate_testing::{START, limiter, store};
use tower::{Layer, ServiceExt};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(2, HOUR));

const MAX: usize = 1_000;

/// Takes whatever it gets from its request, and leaves a mark there.
struct Greedy;

#[derive(Clone)]
struct Mark;

impl<S: Sync> FromRequest<S> for Greedy {
    type Rejection = Infallible;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, Infallible> {
        drop(hyper::upgrade::on(&mut request));
        request.headers_mut().clear();
        request.extensions_mut().clear();
        request.extensions_mut().insert(Mark);
        Ok(Self)
    }
}

#[tokio::test]
async fn an_upgrade_passes_the_layers_that_read_bodies() {
    let echo = any(async |upgrade: WebSocketUpgrade| {
        upgrade.on_upgrade(async |mut socket| {
            while let Some(Ok(message)) = socket.recv().await {
                socket.send(message).await.unwrap();
            }
        })
    });
    let app = Router::new()
        .route("/", echo)
        .layer(limiter(&ManualClock::new(START)).layer(&LOGIN))
        .layer(extract_body(MAX, |_: Greedy| Mark));
    let inner = buffer_body(MAX, |_, body| Ok(body.clone())).layer(app);
    let server = serve(Router::new().fallback_service(inner)).await;
    for status in ["101", "101", "429"] {
        let mut client = TcpStream::connect(server).await.unwrap();
        let upgrade = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        client.write_all(upgrade.as_bytes()).await.unwrap();
        let head = read_to(&mut client, "\r\n\r\n").await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        if status == "101" {
            // A text "hi", masked with zeros, and the same unmasked.
            client.write_all(b"\x81\x82\0\0\0\0hi").await.unwrap();
            let mut frame = [0; 4];
            client.read_exact(&mut frame).await.unwrap();
            assert_eq!(&frame, b"\x81\x02hi");
        }
    }
}

#[tokio::test]
async fn what_an_extractor_takes_the_handler_still_has() {
    #[derive(Clone)]
    struct User(&'static str);

    let handler = post(async |request: Request| {
        let user = request.extensions().get::<User>().map(|user| user.0);
        let is_marked = request.extensions().get::<Mark>().is_some();
        let secret = request.headers().contains_key("x-secret");
        let body = Bytes::from_request(request, &()).await.unwrap();
        format!("{user:?} {is_marked} {secret} {}", body.len())
    });
    let app = Router::new().route("/", handler).layer(extract_body(MAX, |_: Greedy| ())).layer(
        map_request(async |mut request: Request| {
            request.extensions_mut().insert(User("alice"));
            request
        }),
    );
    let request = Request::post(format!("http://{}/", serve(app).await)).header("x-secret", "1");
    let reply = send_request(request.body(Body::from("12345")).unwrap()).await;
    assert_eq!(reply.body, "Some(\"alice\") false true 5");
}

#[tokio::test]
async fn a_panic_of_an_extractor_costs_one_connection_and_no_token() {
    let (store, limiter) = store(Memory::new(), &ManualClock::new(START));
    let app = Router::new()
        .route("/", post(async |body: Bytes| body))
        .layer(limiter.layer(&LOGIN))
        .layer(extract_body(MAX, |body: Bytes| assert_ne!(body, "boom")));
    let read = buffer_body(MAX, |_, body| match &**body {
        b"bang" => panic!("bang"),
        _ => Ok(()),
    });
    let server = serve(Router::new().fallback_service(read.layer(app))).await;
    for body in ["boom", "bang"] {
        let mut client = TcpStream::connect(server).await.unwrap();
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n{body}");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "");
    }
    assert!(store.is_empty());
    let fine = Request::post(format!("http://{server}/")).body(Body::from("fine")).unwrap();
    assert_eq!(send_request(fine).await.body, "fine");
}

#[tokio::test]
async fn each_of_several_layers_reads_the_same_body_with_its_trailers() {
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    let handler = post(async |body: Body| {
        let body = body.collect().await.unwrap();
        let sum = body.trailers().map(|all| all["x-sum"].to_str().unwrap().to_owned());
        format!("{:?} {sum:?}", body.to_bytes())
    });
    let app = Router::new()
        .route("/", handler)
        .layer(extract_body(6, |body: Bytes| body))
        .layer(extract_body(7, |body: String| body));
    let read =
        buffer_body(8, |_, body| (&**body != b"no").then_some(()).ok_or(StatusCode::CONFLICT));
    let service = read.clone().layer(read.layer(app));
    for (parts, status) in
        [(["ab", "cdef"], 200), (["abc", "defg"], 413), (["abcd", "efghi"], 413), (["n", "o"], 409)]
    {
        let frames = parts.map(|part| Frame::data(Bytes::from(part)));
        let frames = frames.into_iter().chain([Frame::trailers(trailers.clone())]);
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
        let request = Request::post("/").body(body).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{parts:?}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status != 200 || text == "b\"abcdef\" Some(\"7\")", "{text:?}");
    }
}
