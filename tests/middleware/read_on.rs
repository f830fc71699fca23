//! A client that writes its whole request before it reads sees the early answer of the layer.
//!
//! These clients write from a thread, as blocking ones do, and a server that does not read on closes
//! with bytes unread: a body of 8 MB does not fit in the buffers of a connection.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use futures_util::{StreamExt, stream};
use http::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::oneshot;
use tollgate::key::header;
use tollgate::middleware::OnFailure;
use tollgate::{Limit, MINUTE, Quota, RateLimitLayer, RateLimiter};
use tollgate_testing::broken::Broken;
use tollgate_testing::web::serve;

static NONE_LEFT: Limit = Limit::new("none-left", Quota::token_bucket(1, MINUTE));

const UPLOAD: usize = 8_000_000;

async fn server(layer: RateLimitLayer) -> SocketAddr {
    let echo = post(async |body: Bytes| body.len().to_string());
    serve(Router::new().route("/", echo).layer(DefaultBodyLimit::disable()).layer(layer)).await
}

fn refusing() -> RateLimitLayer {
    RateLimiter::in_memory().layer(&NONE_LEFT).cost(2)
}

/// A connection that has written a request with these fields and a body of this many bytes.
struct Written(TcpStream);

impl Written {
    fn head(to: SocketAddr, fields: &str) -> io::Result<Self> {
        let mut connection = TcpStream::connect(to)?;
        connection.set_nodelay(true)?;
        write!(connection, "POST / HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n")?;
        Ok(Self(connection))
    }

    fn write(mut self, bytes: usize) -> io::Result<Self> {
        self.0.write_all(&vec![b'x'; bytes])?;
        Ok(self)
    }

    /// Reads the head of the next response, and its body.
    fn read(&mut self) -> io::Result<String> {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            text.extend(byte);
        }
        let text = String::from_utf8(text).unwrap();
        let length = text.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
        self.0.read_exact(&mut vec![0; length.parse().unwrap()])?;
        Ok(text)
    }

    /// Waits until the server closes the connection.
    fn closed(mut self) {
        let _ = self.0.read_to_end(&mut Vec::new());
    }
}

/// Writes all of it, then reads.
async fn upload(to: SocketAddr, fields: &'static str, bytes: usize) -> io::Result<String> {
    blocking(move || Written::head(to, fields)?.write(bytes)?.read()).await
}

async fn blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(run).await.unwrap()
}

const FIELDS: &str = "content-length: 8000000";

/// 50 of 50 such clients saw a broken pipe.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_writes_before_it_reads_sees_each_early_answer() {
    let broken = |later| RateLimiter::new(Broken { later }).layer(&NONE_LEFT);
    for (status, layer) in [
        ("413", refusing()),
        ("400", RateLimiter::in_memory().layer(&NONE_LEFT).key(header("x-user"))),
        ("503", broken(false).on_failure(OnFailure::Refuse)),
        ("503", broken(true)),
    ] {
        let server = server(layer).await;
        for _ in 0..5 {
            let head = upload(server, FIELDS, UPLOAD).await.unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        }
    }
    let server = server(RateLimiter::in_memory().layer(&NONE_LEFT)).await;
    assert!(upload(server, FIELDS, UPLOAD).await.unwrap().starts_with("HTTP/1.1 200 "));
    assert!(upload(server, FIELDS, UPLOAD).await.unwrap().starts_with("HTTP/1.1 429 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_serves_the_next_request() {
    let server = server(refusing()).await;
    blocking(move || {
        let mut connection = Written::head(server, FIELDS).unwrap().write(UPLOAD).unwrap();
        assert!(connection.read().unwrap().starts_with("HTTP/1.1 413 "));
        write!(connection.0, "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").unwrap();
        assert!(connection.read().unwrap().starts_with("HTTP/1.1 413 "));
    })
    .await;
}

/// The answer does not wait for the rest of the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_before_it_has_written_all_sees_the_answer_at_once() {
    let server = server(refusing()).await;
    blocking(move || {
        let mut connection = Written::head(server, FIELDS).unwrap();
        assert!(connection.read().unwrap().starts_with("HTTP/1.1 413 "));
        assert!(connection.write(UPLOAD).is_ok());
    })
    .await;
}

/// HTTP/2 stops the client by itself, so nothing more is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_2_is_told_to_stop() {
    const PIECES: usize = UPLOAD / 10_000;
    let server = server(refusing()).await;
    let (body, dropped) = oneshot::channel::<()>();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let pieces = stream::iter(0..PIECES).map(move |_| {
        let _is_there = &body;
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 10_000]))
    });
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = Request::post(format!("http://{server}/")).body(Body::from_stream(pieces));
    let response = client.request(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 413);
    // The connection stays open, so the body ends by itself or because the server wants no more.
    assert!(dropped.await.is_err());
    assert!(taken.load(Ordering::SeqCst) < PIECES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zero_switches_it_off() {
    let long = Duration::from_secs(60);
    for layer in [
        refusing().read_on(0, long, 10),
        refusing().read_on(u64::MAX, Duration::ZERO, 10),
        refusing().read_on(u64::MAX, long, 0),
    ] {
        assert!(upload(server(layer).await, FIELDS, UPLOAD).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_longer_than_the_bound_is_not_read_on() {
    let long = Duration::from_secs(60);
    let bounded = || refusing().read_on(7_999_999, long, 10);
    assert!(upload(server(bounded()).await, FIELDS, UPLOAD).await.is_err());
    // In chunks, that is only known on the way.
    let chunk = "transfer-encoding: chunked\r\n\r\n7a1200"; // 8,000,000 in hexadecimal
    assert!(upload(server(bounded()).await, chunk, UPLOAD + 20_000_000).await.is_err());
}

/// A client that stops in the middle holds its connection for so long and not longer.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_come_in_time_is_not_waited_for() {
    let server = server(refusing().read_on(u64::MAX, Duration::from_millis(50), 10)).await;
    blocking(move || {
        let mut connection = Written::head(server, FIELDS).unwrap().write(10).unwrap();
        assert!(connection.read().unwrap().starts_with("HTTP/1.1 413 "));
        connection.closed();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_are_read_at_once() {
    let server = server(refusing().read_on(u64::MAX, Duration::from_secs(60), 1)).await;
    let slow = blocking(move || {
        let mut slow = Written::head(server, FIELDS).unwrap().write(10).unwrap();
        assert!(slow.read().unwrap().starts_with("HTTP/1.1 413 "));
        slow
    });
    let slow = slow.await;
    assert!(upload(server, FIELDS, UPLOAD).await.is_err());
    // Its place is free when it has ended.
    blocking(move || slow.write(UPLOAD - 10).unwrap()).await;
    while upload(server, FIELDS, UPLOAD).await.is_err() {}
}

/// Such a client waits for the answer, and to read would invite it to send.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_100_continue_is_not_invited() {
    let server = server(refusing()).await;
    blocking(move || {
        let expecting = "content-length: 8000000\r\nexpect: 100-continue";
        let mut connection = Written::head(server, expecting).unwrap();
        assert!(connection.read().unwrap().starts_with("HTTP/1.1 413 "));
        connection.closed();
    })
    .await;
}
