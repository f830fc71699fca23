//! A server whose limits change while it runs: on SIGHUP, and when their file changes.
//!
//! Run it with `cargo run -p tollgate-config --example reload`, then edit `limits.toml` beside it, or
//! send `kill -HUP` with the id that it prints. It says what has changed, and what takes a restart;
//! with a mistake in the file, it says where, and its limits stay as they are.
//!
//! Its arguments are the path of another file, and the port.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use notify::{Event, RecursiveMode, Watcher};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;
use tollgate::RateLimiter;
use tollgate_config::{Config, ConfigError};

/// Only the limit of all requests: a server has more, as the example `config` does.
fn app(config: &Config, limiter: &RateLimiter) -> Result<Router, ConfigError> {
    let per_client = config.limit("per-client")?.layer(limiter)?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(per_client);
    if let Err(unused) = config.finish() {
        // The file of the examples has limits that this program does not use.
        println!("not used here:\n{unused}");
    }
    Ok(app)
}

/// What makes the server read its file again.
#[derive(Clone, Copy)]
pub(crate) enum Trigger {
    Hangup,
    Change,
}

/// Serves until the process ends.
pub(crate) async fn run(
    path: &Path,
    port: u16,
    triggers: &[Trigger],
) -> Result<(), Box<dyn Error>> {
    let config = Config::from_file(path)?;
    let limiter = RateLimiter::in_memory();
    let app = app(&config, &limiter)?;

    // Room for one: a reload that is due reads whatever has changed until then.
    let (due, reloads) = mpsc::channel(1);
    let mut watchers = Vec::new();
    for trigger in triggers {
        match trigger {
            Trigger::Hangup => on_hangup(due.clone())?,
            Trigger::Change => watchers.push(on_change(path, due.clone())?),
        }
    }
    tokio::spawn(reload(config, limiter, reloads));

    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    println!("process {} listens on {}", std::process::id(), listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    drop(watchers);
    Ok(())
}

/// An editor writes a file in steps. So a reload waits until nothing has happened for this long.
const QUIET: Duration = Duration::from_millis(100);

async fn reload(config: Config, limiter: RateLimiter, mut due: Receiver<()>) {
    while due.recv().await.is_some() {
        while let Ok(Some(())) = timeout(QUIET, due.recv()).await {}
        // A small file: to read it blocks for some microseconds.
        match config.reload(&limiter) {
            Ok(changes) => println!("{changes}"),
            Err(error) => println!("the limits stay as they are:\n{error}"),
        }
    }
}

/// Asks for a reload on each SIGHUP, as operators know it from other servers.
#[cfg(unix)]
fn on_hangup(due: Sender<()>) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let _ = due.try_send(()); // one that is due already will do
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn on_hangup(_: Sender<()>) -> std::io::Result<()> {
    Ok(()) // there is no such signal
}

/// Asks for a reload when the file changes, until the watcher is dropped.
///
/// It watches the directory: editors, and Kubernetes, put another file in the place of the old one.
fn on_change(path: &Path, due: Sender<()>) -> Result<impl Watcher + use<>, Box<dyn Error>> {
    let path = std::path::absolute(path)?;
    let directory = path.parent().ok_or("a file is in a directory")?.to_owned();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| concerns(&path, &event)) {
            let _ = due.try_send(());
        }
    })?;
    watcher.watch(&directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Whether an event in the directory may have changed what is in the file.
///
/// To read the file is an event as well, and so is each line of a log beside it: either would make
/// the server reload again and again.
pub(crate) fn concerns(path: &Path, event: &Event) -> bool {
    // Kubernetes mounts a file as a link through `..data`, which it replaces.
    let is_it =
        |other: &PathBuf| other.file_name() == path.file_name() || other.ends_with("..data");
    !event.kind.is_access() && event.paths.iter().any(is_it)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/limits.toml");
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().map_or_else(|| PathBuf::from(default), PathBuf::from);
    let port = arguments.next().map_or(Ok(3000), |port| port.parse())?;
    run(&path, port, &[Trigger::Hangup, Trigger::Change]).await
}
