//! A client that reads what a server has left for it, and is never refused. The server allows 200
//! requests a second; the client sends 1,000 as fast as it may, then as many without the layer.
//!
//! Run it with `cargo run -p tollgate-client --example pacing`, or with another number of requests
//! behind `--`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_client::pacing::PacingLayer;
use tower::{Layer, Service, ServiceExt};

const RATE: u32 = 200;
/// They have a bucket of a quarter of a second.
const FOR_ALL: Limit = Limit::new("for-all", Quota::token_bucket(RATE as u64, SECOND).capacity(50));

/// The requests that are under way, or wait for their turn, at one time.
const TASKS: u32 = 32;

/// A server that allows so many requests a second.
pub(crate) async fn them(limiter: &RateLimiter) -> std::io::Result<SocketAddr> {
    let app = Router::new().route("/", get(async || "hello")).layer(limiter.layer(&FOR_ALL));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Sends them so many requests, and returns how many were refused, and the time that it took.
pub(crate) async fn call_them<S>(them: SocketAddr, client: S, requests: u32) -> (u32, Duration)
where
    S: Service<Request<Full<Bytes>>, Response = Response<Incoming>, Error = Error>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let mut client = client.clone();
        tasks.spawn(async move {
            let mut refused = 0;
            for _ in (task..requests).step_by(TASKS as usize) {
                let request = Request::get(format!("http://{them}/")).body(Full::default());
                let request = request.expect("an address makes a request");
                let ready = client.ready().await.expect("this client is always ready");
                let response = ready.call(request).await.expect("they are there");
                refused += u32::from(response.status() == 429);
                // A connection that is read to its end is used again.
                response.into_body().collect().await.expect("a short body");
            }
            refused
        });
    }
    (tasks.join_all().await.into_iter().sum(), start.elapsed())
}

/// What they allow in this time: a full bucket, and their rate.
pub(crate) fn allowed(elapsed: Duration) -> f64 {
    50.0 + f64::from(RATE) * elapsed.as_secs_f64()
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let requests = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();

    let address = them(&RateLimiter::in_memory()).await?;
    let paced = PacingLayer::new().layer(client.clone());
    let (refused, elapsed) = call_them(address, paced, requests).await;
    let share = 100.0 * f64::from(requests) / allowed(elapsed);
    let seconds = elapsed.as_secs_f64();
    println!("with the layer: {refused} of {requests} refused, in {seconds:.2} s");
    println!("                {share:.1} % of what they allow in that time");

    let address = them(&RateLimiter::in_memory()).await?;
    let (refused, elapsed) = call_them(address, client, requests).await;
    let seconds = elapsed.as_secs_f64();
    println!("without it:     {refused} of {requests} refused, in {seconds:.2} s");
    Ok(())
}
