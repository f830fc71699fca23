//! A limit on failures only: every attempt takes a token up front, so that many guesses at once get
//! no more than a few; the token is refunded unless the password was wrong, and the right password
//! resets the limit of the user.
//!
//! Run it with `cargo run --example failed_logins`.

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{HeaderMap, Request, StatusCode};
use tollgate::key::header;
use tollgate::{HOUR, Limit, Quota, RateLimitExt, RateLimiter, Rule};
use tower::ServiceExt;

/// Wrong passwords for one user name: 3 at once, then one every 20 minutes.
const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(3, HOUR));

async fn login(headers: HeaderMap) -> StatusCode {
    match headers.get("x-password").is_some_and(|password| password == "correct horse") {
        true => StatusCode::OK,
        false => StatusCode::UNAUTHORIZED,
    }
}

pub(crate) fn app(limiter: RateLimiter) -> Router {
    let failures = Rule::new(&FAILURES)
        .key(header("x-user"))
        .reset_if(|response| response.is_success())
        // Any other failure is not the user's fault.
        .refund_if(|response| response.status() != StatusCode::UNAUTHORIZED);
    Router::new().route("/login", post(login).rate_limit(limiter.layer(failures)))
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
