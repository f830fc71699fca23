//! Clients that do odd things with their connection while a limit decides: they ask before they send a
//! body, change the protocol, or leave. Each plays against a real server, by bytes on a socket.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::routing::{any, get, post};
use futures_util::stream;
use http::{Method, Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::Instant;
use tollgate::clock::ManualClock;
use tollgate::middleware::{Meter, ResponseHead};
use tollgate::{Limit, MINUTE, Quota, RateLimitLayer, RateLimiter, Rule, SECOND};
use tollgate_testing::queue::{paused, tokens};
use tollgate_testing::web::{read_to, send_over, serve};
use tollgate_testing::{START, limiter};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static TEN: Limit = Limit::new("ten", Quota::token_bucket(10, MINUTE));
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));

// A client that waits for leave to send its body.

const EXPECT: &[u8] =
    b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n";

async fn length(body: Bytes) -> String {
    format!("{} bytes", body.len())
}

/// The server must neither ask for the body of a request that it has refused, nor take what follows for
/// a request: it closes the connection.
#[tokio::test]
async fn a_refused_client_is_not_asked_for_its_body() {
    let limiter = limiter(&ManualClock::new(START));
    limiter.limit(&TWO).cost(2).await.unwrap();
    let app = Router::new().route("/", post(length)).layer(limiter.layer(&TWO));
    let server = serve(app).await;
    let mut connection = TcpStream::connect(server).await.unwrap();
    connection.write_all(EXPECT).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.ends_with("\"violated-policies\":[\"two\"]}"), "one answer: {answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_in_the_queue_is_asked_for_its_body_when_its_turn_comes() {
    let layer = paused().layer(&SPACED).queue(MINUTE);
    let server = serve(Router::new().route("/", post(length)).layer(layer)).await;
    let mut connection = TcpStream::connect(server).await.unwrap();
    for _ in 0..2 {
        let since = Instant::now();
        connection.write_all(EXPECT).await.unwrap();
        let asked = read_to(&mut connection, "\r\n\r\n").await;
        assert_eq!((asked.as_str(), since.elapsed()), ("HTTP/1.1 100 Continue\r\n\r\n", SECOND));
        connection.write_all(b"0123456789").await.unwrap();
        let answer = read_to(&mut connection, "10 bytes").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

// A client that changes the protocol, as for a WebSocket.

const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

/// Sends everything back in the new protocol, a token for each byte; tells when that is over.
fn echoing(
    meter: Option<Meter>,
    mut request: Request,
    over: mpsc::UnboundedSender<()>,
) -> Response<Body> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut connection = TokioIo::new(upgrade.await.unwrap());
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = connection.read(&mut bytes).await {
            if let Some(meter) = &meter {
                meter.add(count.try_into().unwrap());
            }
            connection.write_all(&bytes[..count]).await.unwrap();
        }
        drop(meter);
        over.send(()).unwrap();
    });
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    response.header("connection", "upgrade").header("upgrade", "echo").body(Body::empty()).unwrap()
}

/// Six upgrades, each of which says "ping", one after another: their statuses.
async fn upgraded(layer: RateLimitLayer) -> Vec<u16> {
    let (tell, mut over) = mpsc::unbounded_channel();
    let handler = async move |meter: Option<Meter>, request: Request| echoing(meter, request, tell);
    let server = serve(Router::new().route("/", get(handler)).layer(layer)).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let mut connection = TcpStream::connect(server).await.unwrap();
        connection.write_all(UPGRADE).await.unwrap();
        let head = read_to(&mut connection, "\r\n\r\n").await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if status == 101 {
            connection.write_all(b"ping").await.unwrap();
            assert_eq!(read_to(&mut connection, "ping").await, "ping");
            drop(connection);
            over.recv().await.unwrap();
        }
        statuses.push(status);
    }
    statuses
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_held_to_a_limit_like_any_request() {
    let limited = [101, 101, 429, 429, 429, 429];
    let layer = || limiter(&ManualClock::new(START)).layer(&TWO);
    assert_eq!(upgraded(layer()).await, limited);
    assert_eq!(upgraded(layer().expose()).await, limited);
    assert_eq!(upgraded(layer().refund_dropped()).await, limited);
    let since = Instant::now();
    assert_eq!(upgraded(paused().layer(&SPACED).queue(MINUTE)).await, [101; 6]);
    assert_eq!(since.elapsed(), 6 * SECOND);
}

/// The bytes sent in the new protocol are counted until the connection ends: 4 tokens each time.
#[tokio::test]
async fn an_upgrade_is_settled_when_its_connection_is_over() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&TEN).cost(5).settle();
    assert_eq!(upgraded(layer).await, [101, 101, 429, 429, 429, 429]);
    assert_eq!(tokens(&limiter, &TEN), 2.0);
}

/// When 101 did not count as a success, each upgrade got its token back: 6 of 6 ran under a limit
/// of 2. Over HTTP/2 an upgrade has status 200, so the client could choose.
#[tokio::test]
async fn an_upgrade_is_a_success() {
    let by = |predicate: fn(&ResponseHead<'_>) -> bool| {
        limiter(&ManualClock::new(START)).layer(Rule::new(&TWO).refund_if(predicate))
    };
    let successes = upgraded(by(|response| !response.is_success())).await;
    assert_eq!(successes, [101, 101, 429, 429, 429, 429]);
    assert_eq!(upgraded(by(|response| response.is_success())).await, [101; 6]);
}

// A client that leaves the queue.

/// Returns when this many requests wait.
async fn waiting(limiter: &RateLimiter, count: usize) {
    while limiter.peek(&SPACED).waiting() != count {
        yield_now().await;
    }
}

/// As the guide to queues says: over HTTP/1.1, hyper does not read on while a body is unread, so it does
/// not notice that the client has gone.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gives_its_slot_up_once_its_body_is_read() {
    let partial = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n01234";
    let whole = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\n01234";
    let none = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    for (request, is_noticed) in
        [(&none[..], true), (&whole[..], true), (&partial[..], false), (EXPECT, false)]
    {
        let limiter = paused();
        let layer = limiter.layer(&SPACED).queue(MINUTE);
        let server = serve(Router::new().route("/", any(length)).layer(layer)).await;
        for count in 1..=3 {
            let mut connection = TcpStream::connect(server).await.unwrap();
            connection.write_all(request).await.unwrap();
            waiting(&limiter, if is_noticed { 1 } else { count }).await;
            drop(connection);
            if is_noticed {
                waiting(&limiter, 0).await;
            }
        }
        let since = Instant::now();
        send_over(Version::HTTP_11, server, Method::GET, "/", &[]).await;
        let wanted = if is_noticed { SECOND } else { 4 * SECOND };
        assert_eq!(since.elapsed(), wanted, "{}", String::from_utf8_lossy(request));
    }
}

/// Over HTTP/2, hyper notices at once that the client has gone.
#[tokio::test(start_paused = true)]
async fn a_client_of_http_2_that_leaves_gives_its_slot_up_at_once() {
    let limiter = paused();
    let layer = limiter.layer(&SPACED).queue(MINUTE);
    let server = serve(Router::new().route("/", any(length)).layer(layer)).await;
    for _ in 0..3 {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let request = Request::post(format!("http://{server}/")).body(body).unwrap();
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let asking = tokio::spawn(async move { client.request(request).await });
        waiting(&limiter, 1).await;
        asking.abort();
        waiting(&limiter, 0).await;
    }
    let since = Instant::now();
    send_over(Version::HTTP_2, server, Method::GET, "/", &[]).await;
    assert_eq!(since.elapsed(), SECOND);
}
