//! Clients that attack a real server by what they send.

#![cfg(all(feature = "memory", feature = "axum"))]

mod connections;
#[cfg(feature = "credentials")]
mod http;
