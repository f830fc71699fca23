//! The layer for clients, and clients that others wrote against our server.

#![cfg(all(feature = "memory", feature = "retry"))]

#[cfg(feature = "axum")]
mod clients;
mod layer;
