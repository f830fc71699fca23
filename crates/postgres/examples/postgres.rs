//! A service that runs in several processes: its buckets are in the PostgreSQL that it has anyway.
//!
//! Run it with `DATABASE_URL=postgres://app@127.0.0.1/app cargo run -p tollgate-postgres --example
//! postgres`, several times, with another `PORT` each time: all of them together let a client ask
//! ten times an hour. The first start makes the schema `tollgate`; later ones need no right to.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tollgate::key::ClientIp;
use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_postgres::Postgres;

const PER_CLIENT: Limit = Limit::new("postgres-per-client", Quota::token_bucket(10, HOUR));

/// A limiter on the database at this URL.
pub(crate) async fn limiter(url: &str) -> Result<RateLimiter, Box<dyn Error>> {
    Ok(RateLimiter::new(Postgres::connect(url).await?))
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let layer = limiter.layer(&PER_CLIENT).key(ClientIp::peer());
    Router::new().route("/", get(async || "hello\n")).layer(layer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "say where the database is: DATABASE_URL=postgres://user@host/database")?;
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let app = app(&limiter(&url).await?);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("try: curl -i http://{}/", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
