//! Limits of one machine that survive a restart: each account has three free reports a day, and
//! starting the service anew brings no more.
//!
//! Run it with `cargo run -p tollgate-embedded --example embedded`: it serves five requests, and
//! restarts after the second. The buckets are in a file, here one in the directory for temporary
//! files.

use std::error::Error;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::Request;
use tollgate::backend::BackendError;
use tollgate::key::header;
use tollgate::{DAY, Limit, Quota, RateLimitExt, RateLimiter};
use tollgate_embedded::Embedded;
use tower::ServiceExt;

/// The header field stands for what your authentication has established.
const REPORTS: Limit = Limit::new("free-reports", Quota::token_bucket(3, DAY));

/// The service as it starts, with the buckets that the file holds.
pub(crate) fn start(path: &Path) -> Result<Router, BackendError> {
    let limiter = RateLimiter::new(Embedded::open(path)?);
    let reports =
        post(async || "your report").rate_limit(limiter.layer(&REPORTS).key(header("x-account")));
    Ok(Router::new().route("/reports", reports))
}

pub(crate) async fn ask(app: &Router, account: &str) -> u16 {
    let request = Request::post("/reports").header("x-account", account).body(Body::empty());
    let Ok(response) = app.clone().oneshot(request.expect("a name is a header value")).await;
    response.status().as_u16()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("tollgate-example-{}.db", std::process::id()));
    let mut app = start(&path)?;
    for nth in 1..=5 {
        println!("report {nth} for alice: {}", ask(&app, "alice").await);
        if nth == 2 {
            // Dropping the service waits until all that it has decided is in the file.
            drop(app);
            app = start(&path)?;
            println!("restarted");
        }
    }
    drop(app);
    std::fs::remove_file(&path)?;
    Ok(())
}
