//! A limit on failures only: look first, take a token when the password is wrong, and give the
//! user a fresh start when it is right.
//!
//! Run it with `cargo run --example failed_logins`.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use http::{HeaderMap, Request, StatusCode};
use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
use tower::ServiceExt;

/// Wrong passwords for one user name: 3 at once, then one every 20 minutes.
const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(3, HOUR));

async fn login(
    State(limiter): State<RateLimiter>,
    headers: HeaderMap,
) -> Result<StatusCode, RateLimited> {
    let field = |name| headers.get(name).map_or("", |value| value.to_str().unwrap_or(""));
    let user = field("x-user");
    limiter.check(&FAILURES).key(user).await?.into_result()?;
    if field("x-password") == "correct horse" {
        limiter.reset(&FAILURES).key(user).await?;
        return Ok(StatusCode::OK);
    }
    // Many guesses at once may all have passed the check: only those that get a token are answered.
    limiter.limit(&FAILURES).key(user).await?.into_result()?;
    Ok(StatusCode::UNAUTHORIZED)
}

pub(crate) fn app(limiter: RateLimiter) -> Router {
    Router::new().route("/login", post(login)).with_state(limiter)
}

pub(crate) async fn attempt(app: &Router, user: &str, password: &str) -> u16 {
    let request = Request::post("/login").header("x-user", user).header("x-password", password);
    let request = request.body(Body::empty()).expect("names and passwords are header values");
    let Ok(response) = app.clone().oneshot(request).await;
    response.status().as_u16()
}

#[tokio::main]
async fn main() {
    let app = app(RateLimiter::in_memory());
    for password in ["a", "b", "correct horse", "c", "d", "e", "correct horse"] {
        println!("alice, {password:?}: {}", attempt(&app, "alice", password).await);
    }
}
