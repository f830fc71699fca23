//! A client that retries when the server tells it to. The server allows two requests a second; both
//! ends use Tollgate.
//!
//! Run it with `cargo run -p tollgate-client --example polite_client`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_client::retry::RetryLayer;
use tower::{Layer, Service, ServiceExt};

const FOR_ALL: Limit = Limit::new("for-all", Quota::token_bucket(2, SECOND));

/// A server that allows two requests a second.
pub(crate) async fn them(limiter: &RateLimiter) -> std::io::Result<SocketAddr> {
    let app = Router::new().route("/", get(async || "hello")).layer(limiter.layer(&FOR_ALL));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Asks them this often, and lists the statuses of the answers and when they came.
pub(crate) async fn call_them(them: SocketAddr, times: u32) -> Vec<(u16, Duration)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut client = RetryLayer::new().tries(3).max_wait(Duration::from_secs(10)).layer(client);
    let start = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..times {
        let request = Request::get(format!("http://{them}/")).body(Full::default());
        let request = request.expect("an address makes a request");
        let ready = client.ready().await.expect("this client is always ready");
        let response = ready.call(request).await.expect("they are there");
        answers.push((response.status().as_u16(), start.elapsed()));
    }
    answers
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = them(&RateLimiter::in_memory()).await?;
    for (status, elapsed) in call_them(address, 5).await {
        println!("{status} after {:.1} s", elapsed.as_secs_f64());
    }
    Ok(())
}
