//! What observers are told: each event of each source, once.

#![cfg(all(feature = "memory", feature = "axum"))]

mod calls;
mod failures;
mod layers;
mod queues;
mod threads;
