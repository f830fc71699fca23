//! Looking into the limits of a running service: an operator finds out why a client is refused, lists
//! the clients that are blocked or in debt, and sets one free.
//!
//! The routes are mounted at a path of the service, behind a token that only operators have. The
//! buckets are in a file, here one in the directory for temporary files: the store in memory keeps no
//! keys, and could only count.
//!
//! Run it with `cargo run -p tollgate-admin --example admin`.

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use tollgate::key::{Key, digest, header};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
use tollgate_admin::admin;
use tollgate_embedded::Embedded;
use tower::ServiceExt;

/// The header field stands for what your authentication has established.
const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
const API: Limit = Limit::new("api", Quota::fixed_window(600, MINUTE));

/// What the service knows of the token: its digest. Comparing digests takes the same time however
/// much of a guess is right.
type KnownToken = Arc<Key>;

/// Lets operators alone through.
async fn operators_only(
    State(known): State<KnownToken>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let given = request.headers().get(AUTHORIZATION).ok_or(StatusCode::UNAUTHORIZED)?;
    match digest(given.as_bytes()) == *known {
        true => Ok(next.run(request).await),
        false => Err(StatusCode::FORBIDDEN),
    }
}

pub(crate) fn app(limiter: &RateLimiter, token: &str) -> Router {
    let login = post(async || "in\n").rate_limit(limiter.layer(&LOGIN).key(header("x-user")));
    let known: KnownToken = Arc::new(digest(format!("Bearer {token}")));
    let limits = admin(limiter, [&LOGIN, &API]).guard(from_fn_with_state(known, operators_only));
    Router::new().route("/login", login).nest("/admin/limits", limits)
}

/// Sends a request with a token, and returns the status and the body.
pub(crate) async fn ask(
    app: &Router,
    token: &str,
    (method, path): (Method, &str),
    body: &'static str,
) -> Result<(u16, String), Box<dyn Error>> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    let request = request.header(CONTENT_TYPE, "application/json").header("x-user", "mallory");
    let response = app.clone().oneshot(request.body(Body::from(body))?).await?;
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 1 << 20).await?;
    Ok((status, String::from_utf8(body.to_vec())?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("tollgate-admin-{}.db", std::process::id()));
    let limiter = RateLimiter::new(Embedded::open(&path)?);
    let token = "of-this-example"; // in production, from the environment
    let app = app(&limiter, token);
    for _ in 0..6 {
        ask(&app, token, (Method::POST, "/login"), "").await?;
    }
    limiter.penalize(&LOGIN, 20).key("eve").await?;
    let mallory = "/admin/limits/login/mallory";
    for (token, request, body) in [
        ("guessed", (Method::GET, "/admin/limits"), ""),
        (token, (Method::GET, "/admin/limits"), ""),
        (token, (Method::GET, mallory), ""),
        (token, (Method::POST, "/admin/limits/login/mallory/block"), r#"{"time": "1 day"}"#),
        (token, (Method::GET, "/admin/limits/login?state=blocked"), ""),
        (token, (Method::GET, "/admin/limits/login?state=debt"), ""),
        (token, (Method::DELETE, mallory), ""),
        (token, (Method::POST, "/login"), ""),
        (token, (Method::GET, "/admin/limits/log-in/mallory"), ""),
    ] {
        let (status, answer) = ask(&app, token, request.clone(), body).await?;
        println!("{} {} {body}\n  {status} {}", request.0, request.1, answer.trim_end());
    }
    drop((app, limiter));
    std::fs::remove_file(&path)?;
    Ok(())
}
