//! Downloads, uploads and WebSocket messages through a real server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::{any, get, post};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, StatusCode, Version};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tollgate::{Limit, Quota, RateLimited, RateLimiter, SECOND};
use tollgate_testing::queue::{lines, ms, paused, settled};
use tollgate_testing::web::{read_to, serve};

/// A byte each millisecond.
const BYTES: Limit = Limit::new("bytes", Quota::token_bucket(1_000, SECOND).capacity(0));

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number % 251) as u8).collect()
}

async fn download(State(limiter): State<RateLimiter>) -> Response {
    Response::new(Body::new(limiter.throttle(&BYTES).body(Body::from(pattern(5_000)))))
}

/// Reads an upload at the pace of the limit, and says how much came.
async fn upload(State(limiter): State<RateLimiter>, body: Body) -> Result<String, StatusCode> {
    let start = Instant::now();
    let body = limiter.throttle(&BYTES).body(body).collect().await;
    let bytes = body.map_err(|_| StatusCode::BAD_REQUEST)?.to_bytes();
    let is_whole = bytes == pattern(bytes.len());
    Ok(format!("{} {is_whole} {}", bytes.len(), start.elapsed().as_millis()))
}

fn app(limiter: &RateLimiter) -> Router {
    let routes = Router::new().route("/down", get(download)).route("/up", post(upload));
    routes.with_state(limiter.clone())
}

fn client(version: Version) -> Client<hyper_util::client::legacy::connect::HttpConnector, Body> {
    let mut client = Client::builder(TokioExecutor::new());
    client.http2_only(version == Version::HTTP_2).build_http()
}

#[tokio::test(start_paused = true)]
async fn a_download_comes_at_the_pace_of_the_limit() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let server = serve(app(&paused())).await;
        let start = Instant::now();
        let uri = format!("http://{server}/down").parse().unwrap();
        let response = client(version).get(uri).await.unwrap();
        // The length is that of the inner body, so HTTP/1.1 sends no chunks.
        assert_eq!(response.headers()["content-length"], "5000");
        let mut body = response.into_body();
        let mut got = Vec::new();
        while let Some(frame) = body.frame().await {
            got.extend_from_slice(&frame.unwrap().into_data().unwrap());
            let most = start.elapsed().as_millis();
            assert!(got.len() as u128 <= most, "{} bytes after {most} ms", got.len());
        }
        assert_eq!((got == pattern(5_000), start.elapsed()), (true, SECOND * 5), "{version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_read_at_the_pace_of_the_limit() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let server = serve(app(&paused())).await;
        let request = Request::post(format!("http://{server}/up")).body(pattern(20_000).into());
        let response = client(version).request(request.unwrap()).await.unwrap();
        let told = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(told, "20000 true 20000", "{version:?}");
    }
}

/// A client that goes away in the middle leaves no waiter behind.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_gives_its_bytes_back() {
    let limiter = paused();
    let server = serve(app(&limiter)).await;
    let mut connection = TcpStream::connect(server).await.unwrap();
    connection.write_all(b"GET /down HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_to(&mut connection, "\r\n\r\n").await;
    assert_eq!(lines(&limiter), 1);
    drop(connection);
    // The server notices when it next writes, which is when the next piece comes.
    while lines(&limiter) > 0 {
        tokio::time::sleep(ms(10)).await;
        settled().await;
    }
    let waited = limiter.limit(&BYTES).cost(10).reserve().await.unwrap().wait();
    assert_eq!(waited, ms(10), "no other waits");
}

#[tokio::test(start_paused = true)]
async fn a_download_that_the_limit_cannot_serve_is_cut_off_and_not_ended() {
    const SHORT: Limit = Limit::new("short", Quota::token_bucket(100, SECOND).max_reserved(0));
    async fn short(State(limiter): State<RateLimiter>) -> Response {
        // Without a length, an end that looks regular would look like the whole body.
        let chunks = futures_util::stream::iter([Ok::<_, RateLimited>(Bytes::from(pattern(300)))]);
        Response::new(Body::new(limiter.throttle(&SHORT).body(Body::from_stream(chunks))))
    }
    let app = Router::new().route("/", get(short)).with_state(paused());
    let server = serve(app).await;
    let uri = format!("http://{server}/").parse().unwrap();
    let mut body = client(Version::HTTP_11).get(uri).await.unwrap().into_body();
    let mut got = 0;
    let error = loop {
        match body.frame().await.expect("an end that looks regular") {
            Ok(frame) => got += frame.into_data().unwrap().len(),
            Err(error) => break error,
        }
    };
    assert!(got <= 100 && !error.is_timeout(), "{got}: {error:?}");
}

/// Five a second, and two at once.
const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(5, SECOND).capacity(2));

type Seen = Arc<Mutex<Vec<(String, Duration)>>>;

async fn open(
    State((limiter, seen)): State<(RateLimiter, Seen)>,
    socket: WebSocketUpgrade,
) -> Response {
    socket.on_upgrade(async move |socket| echo(socket, limiter, seen).await)
}

async fn echo(socket: WebSocket, limiter: RateLimiter, seen: Seen) {
    let start = Instant::now();
    let mut socket = limiter.throttle(&MESSAGES).key("alice").try_stream(socket);
    while let Some(Ok(message)) = socket.next().await {
        let text = message.to_text().unwrap().to_owned();
        seen.lock().unwrap().push((text, start.elapsed()));
        if socket.get_mut().send(message).await.is_err() {
            return;
        }
    }
}

async fn upgraded(server: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(server).await.unwrap();
    let upgrade = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.write_all(upgrade.as_bytes()).await.unwrap();
    let head = read_to(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_web_socket_are_slowed_down_and_none_is_lost() {
    let seen = Seen::default();
    let routes = Router::new().route("/chat", any(open));
    let server = serve(routes.with_state((paused(), Arc::clone(&seen)))).await;
    let mut client = upgraded(server).await;
    for number in 0..8 {
        // A text of one digit, masked by zeros.
        let message = [0x81, 0x81, 0, 0, 0, 0, b'0' + number];
        client.write_all(&message).await.unwrap();
    }
    for number in 0..8 {
        let mut echoed = [0; 3];
        client.read_exact(&mut echoed).await.unwrap();
        assert_eq!(echoed, [0x81, 1, b'0' + number]);
    }
    let due = [0, 0, 200, 400, 600, 800, 1_000, 1_200].map(ms);
    let due: Vec<_> = (0..8).map(|number: u8| number.to_string()).zip(due).collect();
    assert_eq!(*seen.lock().unwrap(), due);
}
