//! A server with two limits: one for every client address, a stricter one for log-ins.
//!
//! Run it with `cargo run --example quickstart`, then try the lines that it prints.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use http::StatusCode;
use tollgate::key::{ClientIp, header};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimiter, Rule};

/// All requests of a client address: 20 at once, then 10 a minute.
const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE).capacity(20));

/// Log-ins of each user name: 5 at once, then one every 12 minutes.
const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    // A request without a name gets 401. By default, a missing header field is 400.
    let unnamed = StatusCode::UNAUTHORIZED;
    let login = Rule::new(&LOGIN).key(header("x-user")).missing_key(unnamed);
    Router::new()
        .route("/", get(async || "hello\n"))
        .route("/login", post(async || "welcome\n").rate_limit(limiter.layer(login)))
        .layer(limiter.layer(&PER_CLIENT).key(ClientIp::peer()))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    // Mistakes in the set-up are reported in the log.
    tracing_subscriber::fmt().init();
    println!("Listening on http://127.0.0.1:3000. Try these, until they say 429:");
    println!(
        "  for i in 1 2 3 4 5 6; do curl -iX POST -H 'x-user: alice' 127.0.0.1:3000/login; done"
    );
    println!("  for i in $(seq 25); do curl -i 127.0.0.1:3000/; done");
    let app = app(&RateLimiter::in_memory());
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
