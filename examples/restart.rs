//! Limits in memory that outlive the process: each account has three free reports a day, and a
//! deployment brings no more.
//!
//! Run it with `cargo run --example restart`: it serves five requests, and restarts after the
//! second. The service loads its buckets when it starts, saves them each minute, and once more when
//! it stops. The file is in the folder for temporary files here; in production, name one on a
//! volume that the next process has, too.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::Request;
use tokio::task::{JoinHandle, spawn_blocking};
use tollgate::backend::Memory;
use tollgate::key::header;
use tollgate::{DAY, Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
use tower::ServiceExt;

/// The header field stands for what your authentication has established.
const REPORTS: Limit = Limit::new("free-reports", Quota::token_bucket(3, DAY));

/// A service, with what it needs to be saved.
pub(crate) struct Service {
    pub(crate) app: Router,
    memory: Arc<Memory>,
    path: PathBuf,
    saver: JoinHandle<()>,
}

impl Service {
    /// The service as it starts: with the buckets of the last process, or with none if there was no
    /// other.
    pub(crate) fn start(path: &Path) -> io::Result<Self> {
        let memory = Arc::new(Memory::new().max_keys(50_000).load_or_empty(path)?);
        let limiter = RateLimiter::new(Arc::clone(&memory));
        let reports = post(async || "your report")
            .rate_limit(limiter.layer(&REPORTS).key(header("x-account")));
        let app = Router::new().route("/reports", reports);
        let saver = tokio::spawn(save_each(MINUTE, Arc::clone(&memory), path.to_owned()));
        Ok(Self { app, memory, path: path.to_owned(), saver })
    }

    /// What comes after `axum::serve(..).with_graceful_shutdown(..)`: no request runs any more.
    pub(crate) fn stop(self) -> io::Result<()> {
        self.saver.abort();
        self.memory.save_to(&self.path)
    }
}

/// Bounds what a crash loses: what was taken since the last save.
pub(crate) async fn save_each(period: Duration, memory: Arc<Memory>, path: PathBuf) {
    loop {
        tokio::time::sleep(period).await;
        let (memory, path) = (Arc::clone(&memory), path.clone());
        // It waits for the disk, so it runs where that holds up no request.
        if let Ok(Err(error)) = spawn_blocking(move || memory.save_to(path)).await {
            eprintln!("{error}"); // in production, an event that an alert is on
        }
    }
}

pub(crate) async fn ask(app: &Router, account: &str) -> u16 {
    let request = Request::post("/reports").header("x-account", account).body(Body::empty());
    let Ok(response) = app.clone().oneshot(request.expect("a name is a header value")).await;
    response.status().as_u16()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("tollgate-example-{}.dump", std::process::id()));
    let mut service = Service::start(&path)?;
    for nth in 1..=5 {
        println!("report {nth} for alice: {}", ask(&service.app, "alice").await);
        if nth == 2 {
            service.stop()?;
            service = Service::start(&path)?;
            println!("restarted");
        }
    }
    service.stop()?;
    std::fs::remove_file(&path)?;
    Ok(())
}
