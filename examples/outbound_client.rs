//! The same layer around an HTTP client, to keep within another service's quota: a request above
//! the quota is refused here, with the time to retry, and never sent.
//!
//! Run it with `cargo run --example outbound_client`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::fields::Dialect;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tower::{Layer, Service, ServiceExt};

/// The quota that the other service allows for each of its hosts.
const THEIRS: Limit = Limit::new("their-api", Quota::token_bucket(3, MINUTE));

/// Asks them this often, and lists the statuses of the answers.
pub(crate) async fn call_them(limiter: &RateLimiter, them: SocketAddr, times: u32) -> Vec<u16> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let layer = limiter
        .layer(&THEIRS)
        .key_with(|head| head.uri().authority().map(|host| host.to_string()))
        .dialects(Dialect::None);
    let mut client = layer.layer(client);
    let mut statuses = Vec::new();
    for _ in 0..times {
        let request = Request::get(format!("http://{them}/")).body(Body::empty());
        let request = request.expect("an address makes a request");
        let ready = client.ready().await.expect("this client is always ready");
        let response: Response<_> = ready.call(request).await.expect("they are there");
        statuses.push(response.status().as_u16());
    }
    statuses
}

/// Their server, which counts what it gets.
pub(crate) async fn them() -> std::io::Result<(SocketAddr, Arc<AtomicU32>)> {
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let count = async move || format!("{}", counter.fetch_add(1, Ordering::Relaxed) + 1);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/", get(count));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((address, asked))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let (address, asked) = them().await?;
    println!("answers: {:?}", call_them(&RateLimiter::in_memory(), address, 5).await);
    println!("they were asked {} times", asked.load(Ordering::Relaxed));
    Ok(())
}
