//! A page that shows what limits do: both kinds with the same numbers, on one clock.
//!
//! Run it with `cargo run --example playground`, and open the address that it prints. A number
//! after `--` is the port to use; 0 is any free one.

mod lane;
mod page;
mod session;
mod settings;
mod socket;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tollgate::clock::{Clock, SystemClock};

use self::session::Sessions;

/// How many tabs are served at once. Each has two limits of at most eight shards, and a queue.
pub(crate) const MAX_SESSIONS: usize = 100;

/// The page, and the limited routes of its visitors.
pub(crate) fn app(clock: impl Clock) -> Router {
    page::routes().merge(session::routes(Sessions::new(Arc::new(clock))))
}

/// Listens on this port of 127.0.0.1, or on the next that is free.
pub(crate) async fn listen(port: u16) -> io::Result<TcpListener> {
    let mut outcome = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    for next in port.saturating_add(1)..port.saturating_add(20) {
        match &outcome {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            _ => break,
        }
        outcome = TcpListener::bind((Ipv4Addr::LOCALHOST, next)).await;
    }
    outcome
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(3000), |port| port.parse())?;
    let listener = listen(port).await?;
    println!("Open http://{} in a browser.", listener.local_addr()?);
    axum::serve(listener, app(SystemClock::new())).await?;
    Ok(())
}
