//! A queue in front of a language model: 40,000 tokens a minute for all clients together. A request
//! pays an estimate, waits up to 30 seconds for its turn, and is settled by what it really cost.
//!
//! Run it with `cargo run --example llm_queue`.

use std::time::Duration;

use axum::{Extension, Router, body::Body, routing::post};
use http::Request;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, time::sleep};
use tollgate::middleware::ActualCost;
use tollgate::{Head, Limit, MINUTE, Quota, RateLimitExt, RateLimiter};

/// Waiting requests may reserve the tokens of one more minute.
const QUOTA: Quota = Quota::token_bucket(40_000, MINUTE).max_reserved(40_000);
pub(crate) const TOKENS: Limit = Limit::new("llm-tokens", QUOTA);

/// The longest answer that the client asks for, and a token for every four bytes of the prompt.
fn estimate(head: &Head<'_>) -> u64 {
    let field = |name| head.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
    field("x-max-tokens").unwrap_or(4_000).saturating_add(field("content-length").unwrap_or(0) / 4)
}

/// Stands for the model, which takes half a second and 1,500 tokens whatever it is asked.
async fn model(_prompt: String) -> (Extension<ActualCost>, &'static str) {
    sleep(Duration::from_millis(500)).await;
    (Extension(ActualCost::new(1_500)), "42")
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let paid = limiter.layer(&TOKENS).cost_with(estimate).settle().queue(Duration::from_secs(30));
    Router::new().route("/", post(model).rate_limit(paid))
}

/// Waits for the signal to stop. After it, requests that get their turn within a second still run.
pub(crate) async fn stopped(limiter: RateLimiter, signal: impl Future) {
    signal.await;
    limiter.drain(Duration::from_secs(1));
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let (limiter, listener) = (RateLimiter::in_memory(), TcpListener::bind("127.0.0.1:0").await?);
    let (app, uri) = (app(&limiter), format!("http://{}/", listener.local_addr()?));
    let stop = stopped(limiter, sleep(Duration::from_millis(600)));
    let server = axum::serve(listener, app).with_graceful_shutdown(stop).into_future();
    let ask = async |after, most: u64| {
        sleep(Duration::from_millis(after)).await;
        let request = Request::post(&uri).header("x-max-tokens", most).body(Body::from("6 x 9 ?!"));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.expect("it is one")).await.expect("it is answered");
        let told = ["server-timing", "retry-after"].map(|name| response.headers().get(name));
        println!("at most {most}: {}, {told:?}", response.status());
    };
    let clients =
        async { tokio::join!(ask(0, 39_998), ask(50, 298), ask(100, 29_998), ask(150, 1_998)) };
    tokio::join!(server, clients).0
}
