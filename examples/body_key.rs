//! A log-in that is limited by the e-mail in its JSON body. A layer reads the body before the limit
//! does, and gives it back to the handler, which knows nothing of the limit.
//!
//! Run it with `cargo run --example body_key`. It serves on a free port, sends requests to itself,
//! and prints what the client saw.

use std::net::SocketAddr;

use axum::body::Body;
use axum::routing::post;
use axum::{Json, Router};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use tollgate::key::extension;
use tollgate::routes::extract_body;
use tollgate::{HOUR, Limit, Quota, RateLimitExt, RateLimiter};

/// Attempts for one e-mail: 3 at once, then one every 20 minutes.
const LOGIN: Limit = Limit::new("login", Quota::token_bucket(3, HOUR));

#[derive(Deserialize)]
struct Login {
    email: String,
    password: String,
}

/// The e-mail in one spelling, so that `Alice@` and `alice@` share a bucket.
#[derive(Clone)]
struct Email(String);

async fn login(Json(login): Json<Login>) -> (StatusCode, String) {
    match login.password == "correct horse" {
        true => (StatusCode::OK, format!("welcome, {}", login.email)),
        false => (StatusCode::UNAUTHORIZED, "wrong password".to_owned()),
    }
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let limit = limiter.layer(&LOGIN).key(extension(|email: &Email| email.0.clone()));
    let email = |Json(login): Json<Login>| Email(login.email.trim().to_lowercase());
    let login = post(login).rate_limit(limit).route_layer(extract_body(16 * 1024, email));
    Router::new().route("/login", login)
}

pub(crate) async fn serve(app: Router) -> std::io::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Sends this body, and tells the status, `Retry-After` and the text of the answer.
pub(crate) async fn attempt(server: SocketAddr, body: String) -> (u16, Option<String>, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let request = Request::post(format!("http://{server}/login"));
    let request = request.header("content-type", "application/json").body(Body::from(body));
    let request = request.expect("an address makes a request");
    let response = client.request(request).await.expect("the server is there");
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.and_then(|value| Some(value.to_str().ok()?.to_owned()));
    let status = response.status().as_u16();
    let text = response.collect().await.expect("the answer has an end").to_bytes();
    (status, retry_after, String::from_utf8_lossy(&text).into_owned())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let server = serve(app(&RateLimiter::in_memory())).await?;
    let login = |email, password| format!(r#"{{"email":"{email}","password":"{password}"}}"#);
    for body in [
        login("alice@example.com", "correct horse"),
        login("Alice@Example.com", "horse"),
        login("alice@example.com ", "battery"),
        login("alice@example.com", "staple"),
        login("bob@example.com", "correct horse"),
        r#"{"password":"no e-mail"}"#.to_owned(),
        login("carol@example.com", &"long".repeat(5_000)),
    ] {
        let (status, retry_after, text) = attempt(server, body.clone()).await;
        let sent = if body.len() > 100 { format!("{} bytes", body.len()) } else { body };
        println!("{sent}\n  {status} {text}");
        if let Some(seconds) = retry_after {
            println!("  retry after {seconds} s");
        }
    }
    Ok(())
}
