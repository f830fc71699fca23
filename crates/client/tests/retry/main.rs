//! The layer for clients.

mod layer;
mod servers;
