//! One limit that all clients share, declared where it is needed: no key, and nothing to register.
//!
//! Run it with `cargo run --example global_signups`.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use http::Request;
use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
use tower::ServiceExt;

async fn sign_up(State(limiter): State<RateLimiter>) -> Result<String, RateLimited> {
    let limit = Limit::new("sign-ups", Quota::fixed_window(3, HOUR));
    let permit = limiter.limit(&limit).await?;
    Ok(format!("welcome ({} more this hour)", permit.remaining()))
}

pub(crate) fn app(limiter: RateLimiter) -> Router {
    Router::new().route("/sign-up", post(sign_up)).with_state(limiter)
}

pub(crate) async fn ask(app: &Router) -> (u16, String) {
    let request = Request::post("/sign-up").body(Body::empty()).expect("this is a request");
    let Ok(response) = app.clone().oneshot(request).await;
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1_024).await.unwrap_or_default();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::main]
async fn main() {
    let app = app(RateLimiter::in_memory());
    for _ in 0..4 {
        let (status, body) = ask(&app).await;
        println!("{status} {body}");
    }
}
