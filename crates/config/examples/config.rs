//! Limits from a file: an operator sets the numbers, the keys and the queue, and the program only
//! names the limits.
//!
//! Run it with `cargo run -p tollgate-config --example config`, or with the path of another file as
//! an argument. Change a name, a number or a word in `limits.toml` to see what it says.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use http::Request;
use tollgate::key::header;
use tollgate::{RateLimitExt, RateLimited, RateLimiter};
use tollgate_config::{Config, ConfigError, ConfiguredLimit};
use tower::ServiceExt;

/// What handlers need.
#[derive(Clone)]
struct Service {
    limiter: RateLimiter,
    login: ConfiguredLimit,
}

/// A limit in a handler stands where any other limit does.
async fn guess(State(service): State<Service>) -> Result<&'static str, RateLimited> {
    service.limiter.limit(&service.login).key("bob").await?;
    Ok("welcome, bob")
}

/// Everything that is wrong with the file, or with the names here, is an error of this function.
pub(crate) fn app(config: &Config, limiter: RateLimiter) -> Result<Router, ConfigError> {
    let limiter = config.configure(limiter);
    let [login, per_client, exports, searches] =
        config.limits(["login", "per-client", "exports", "searches"])?;
    // In production, the user that the authentication has established.
    let by_user = login.layer_with_key(&limiter, header("x-user"))?;
    let app = Router::new()
        .route("/login", post(async || "welcome").rate_limit(by_user))
        .route("/guess", post(guess))
        .route("/exports", get(async || "rows").rate_limit(exports.layer(&limiter)?))
        .route("/searches", get(async || "hits").rate_limit(searches.layer(&limiter)?))
        .route("/health", get(async || "well"))
        .layer(per_client.layer(&limiter)?)
        .with_state(Service { limiter, login });
    config.finish()?; // an entry that no code looks up is an error as well
    Ok(app)
}

/// The status and the body of the answer to a request.
pub(crate) async fn ask(app: &Router, request: http::request::Builder) -> (u16, String) {
    let mut request = request.body(Body::empty()).expect("names are header values");
    request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 1], 5123)));
    let Ok(response) = app.clone().oneshot(request).await;
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap_or_default();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::main]
async fn main() -> Result<(), ConfigError> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/limits.toml");
    let path = std::env::args().nth(1).unwrap_or_else(|| default.to_owned());
    let config = Config::from_file(&path)?;
    let app = app(&config, RateLimiter::in_memory())?;
    println!("{path}: {config:?}");

    for nth in 1..=4 {
        let request = Request::post("/login").header("x-user", "alice");
        println!("log-in {nth} of alice: {:?}", ask(&app, request).await);
    }
    for nth in 1..=3 {
        println!("search {nth}: {:?}", ask(&app, Request::get("/searches")).await);
    }
    println!("an export without a tenant: {:?}", ask(&app, Request::get("/exports")).await);
    let request = Request::get("/exports").header("x-tenant", "acme");
    println!("an export of acme: {:?}", ask(&app, request).await);
    println!("the health check: {:?}", ask(&app, Request::get("/health")).await);

    // What a name that is missing says, at the start.
    let missing = config.limit("exprots").expect_err("there is no such limit");
    println!("{missing}");
    Ok(())
}
