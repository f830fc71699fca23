//! Webhooks that go out: each receiver gets at most ten deliveries a second, and a receiver that
//! answers 429 is left alone for as long as it says, while the others get theirs.
//!
//! Run it with `cargo run --example webhooks`.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode, header::RETRY_AFTER};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tollgate::{Limit, MINUTE, Quota, RateLimiter, SECOND};

/// At an even pace: a receiver never gets two at once.
const PER_RECEIVER: Limit =
    Limit::new("webhooks", Quota::token_bucket(10, SECOND).capacity(0).max_reserved(600));

/// What becomes of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Done,
    /// To be put back into the queue, and tried again after this time.
    Later(Duration),
    Failed,
}

/// Delivers one event when it is the receiver's turn.
pub(crate) async fn deliver(
    limiter: &RateLimiter,
    client: &Client<HttpConnector, Body>,
    url: &str,
    event: &'static str,
) -> Delivery {
    let request = Request::post(url).body(Body::from(event));
    let Ok(request) = request else { return Delivery::Failed };
    let receiver = request.uri().authority().map_or_else(String::new, ToString::to_string);
    // The line of a receiver is a minute long. What does not fit goes back into the queue, so that a
    // receiver that is slow does not fill the memory.
    let turn = match limiter.limit(&PER_RECEIVER).key(&*receiver).reserve_within(MINUTE).await {
        Ok(turn) => turn,
        Err(refused) => return Delivery::Later(refused.retry_after().unwrap_or(MINUTE)),
    };
    turn.ready().await;
    let Ok(response) = client.request(request).await else { return Delivery::Failed };
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => {
            let field = response.headers().get(RETRY_AFTER).and_then(|field| field.to_str().ok());
            let seconds = field.and_then(|field| field.parse().ok()).unwrap_or(60);
            let wait = Duration::from_secs(seconds).min(60 * MINUTE); // whatever it says
            // All processes on one store leave this receiver alone.
            match limiter.block(&PER_RECEIVER, wait).key(&*receiver).await {
                Ok(_) => Delivery::Later(wait),
                Err(_) => Delivery::Failed,
            }
        }
        status if status.is_success() => Delivery::Done,
        _ => Delivery::Failed,
    }
}

pub(crate) fn client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    // Two receivers: one takes all, the other asks for a pause of 30 seconds.
    let welcome = axum::Router::new().route("/", axum::routing::post(async || "ok"));
    let busy = async || (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "30")]);
    let busy = axum::Router::new().route("/", axum::routing::post(busy));
    let (limiter, client) = (RateLimiter::in_memory(), client());
    for (app, events) in [(welcome, 3), (busy, 1)] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, app).await });
        for _ in 0..events {
            println!("{url}: {:?}", deliver(&limiter, &client, &url, "{}").await);
        }
    }
    Ok(())
}
