//! Streams, sinks and bodies whose items wait for a limit.
//!
//! Time is the runtime's and stands still while anything can run, so instants are exact whatever the
//! machine does, over real connections as well.

#![cfg(all(feature = "memory", feature = "axum"))]

mod bodies;
mod connections;
mod failures;
mod hostile;
mod model;
mod sinks;
mod streams;

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::time::Instant;
use tollgate::{Limit, Quota, SECOND};

/// Ten a second, and never two at once.
const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));

/// Reads a stream to its end, and lists the items with the instants at which they came.
async fn timed<S: Stream + Unpin>(mut stream: S) -> Vec<(S::Item, Duration)> {
    let start = Instant::now();
    let mut seen = Vec::new();
    while let Some(item) = stream.next().await {
        seen.push((item, start.elapsed()));
    }
    seen
}
