//! The layer for clients.

#![cfg(all(feature = "memory", feature = "retry"))]

mod layer;
mod servers;
