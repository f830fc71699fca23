//! A service that runs in several processes: its buckets are in Redis if there is one, and in memory if
//! it runs alone.
//!
//! Run it with `REDIS_URL=redis://127.0.0.1 cargo run --features redis --example fleet`, several times,
//! with another `PORT` each time: all of them together let a client ask ten times an hour.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tollgate::backend::Redis;
use tollgate::key::ClientIp;
use tollgate::{HOUR, Limit, Quota, RateLimiter};

const PER_CLIENT: Limit = Limit::new("fleet-per-client", Quota::token_bucket(10, HOUR));

/// A limiter on the Redis at this URL, or for this process alone.
///
/// It does not wait for Redis: until Redis is there, requests are answered with 503. There is no
/// fallback to memory, as each process would then admit the whole quota by itself.
pub(crate) fn limiter(url: Option<&str>) -> Result<RateLimiter, Box<dyn Error>> {
    match url {
        Some(url) => Ok(RateLimiter::new(Redis::at(url).connect_lazily()?)),
        None => Ok(RateLimiter::in_memory()),
    }
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let layer = limiter.layer(&PER_CLIENT).key(ClientIp::peer());
    Router::new().route("/", get(async || "hello\n")).layer(layer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").ok();
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let app = app(&limiter(url.as_deref())?);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("try: curl -i http://{}/", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
