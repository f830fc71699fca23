//! A download and an upload that are held to a number of bytes a second. Each byte waits for its
//! token, so a client that reads as fast as it can gets them evenly.
//!
//! Run it with `cargo run --example streaming`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;
use tollgate::{Limit, Quota, RateLimiter, SECOND};

/// 200 kB a second. A client that has read nothing for a while gets 20 kB at once.
pub(crate) const BYTES: Limit =
    Limit::new("bytes", Quota::token_bucket(200_000, SECOND).capacity(20_000));

pub(crate) const FILE: usize = 120_000;

pub(crate) fn app(limiter: RateLimiter) -> Router {
    let routes = Router::new().route("/file", get(download)).route("/file", post(upload));
    routes.with_state(limiter)
}

async fn download(State(limiter): State<RateLimiter>) -> Response {
    let file = Bytes::from(vec![b'.'; FILE]); // in production, a stream from the disk
    let user = "alice"; // in production, the user that your authentication established
    let body = limiter.throttle(&BYTES).key((user, "down")).body(Body::from(file));
    Response::new(Body::new(body))
}

/// Reads an upload no faster than the limit allows. While it waits the connection is not read, so
/// TCP holds the client back.
async fn upload(State(limiter): State<RateLimiter>, body: Body) -> Result<String, StatusCode> {
    let mut body = limiter.throttle(&BYTES).key(("alice", "up")).body(body);
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.rate_limited() {
            Some(_) => StatusCode::SERVICE_UNAVAILABLE,
            None => StatusCode::BAD_REQUEST, // the client went away
        })?;
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(format!("{bytes} bytes have come"))
}

/// How many bytes had come, and how long after the request.
pub(crate) type Progress = Vec<(usize, Duration)>;

/// Reads the file as fast as it comes.
pub(crate) async fn read_file(server: SocketAddr) -> Result<Progress, Box<dyn std::error::Error>> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let start = Instant::now();
    let mut body = client.get(format!("http://{server}/file").parse()?).await?.into_body();
    let (mut bytes, mut progress) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
        progress.push((bytes, start.elapsed()));
    }
    Ok(progress)
}

/// Sends a file as fast as it goes; what the server says, and how long it took.
pub(crate) async fn send_file(
    server: SocketAddr,
    bytes: usize,
) -> Result<(String, Duration), Box<dyn std::error::Error>> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let start = Instant::now();
    let request =
        Request::post(format!("http://{server}/file")).body(Body::from(vec![0; bytes]))?;
    let answer = client.request(request).await?.into_body().collect().await?.to_bytes();
    Ok((String::from_utf8_lossy(&answer).into_owned(), start.elapsed()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let app = app(RateLimiter::in_memory());
    tokio::spawn(async move { axum::serve(listener, app).await });

    for (bytes, at) in read_file(server).await? {
        println!("{bytes:>6} bytes after {:>3} ms", at.as_millis());
    }
    let (answer, took) = send_file(server, FILE).await?;
    println!("{answer} in {} ms", took.as_millis());
    Ok(())
}
