//! The example does what it says.

use hyper_util::rt::TokioExecutor;
use tollgate::backend::Memory;
use tollgate::clock::{ManualClock, TokioClock};
use tollgate::{HOUR, RateLimiter};
use tollgate_testing::{START, limiter};

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/pacing.rs"]
mod example;

/// Over real connections, on which only the time is not real.
#[tokio::test(start_paused = true)]
async fn a_client_with_pacing_is_never_refused_and_one_without_mostly_is() {
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
    let theirs = RateLimiter::new(Memory::new().clock(TokioClock::new()));
    let them = example::them(&theirs).await.unwrap();
    let paced = tollgate_client::pacing::PacingLayer::new().max_wait(HOUR);
    let paced = tower::Layer::layer(&paced, client.clone());
    assert_eq!(example::call_them(them, paced, 300).await.0, 0);
    // No time passes for this server, so it admits what its bucket holds.
    let them = example::them(&limiter(&ManualClock::new(START))).await.unwrap();
    assert_eq!(example::call_them(them, client, 300).await.0, 250);
}
