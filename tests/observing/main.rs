//! What observers are told: each event of each source, once.

#![cfg(all(feature = "memory", feature = "axum", feature = "metrics"))]

mod calls;
mod dashboard;
mod failures;
mod journal;
mod layers;
mod metrics;
mod queues;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "tracing")]
mod reentrant;
mod scrape;
mod table;
mod threads;
