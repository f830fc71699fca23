//! The layer: what it admits, what handlers see of it, and what it settles.

#![cfg(all(feature = "memory", feature = "middleware"))]

mod admission;
#[cfg(feature = "axum")]
mod after_response;
mod block_after;
#[cfg(feature = "axum")]
mod body_attacks;
#[cfg(feature = "axum")]
mod body_key;
#[cfg(feature = "axum")]
mod buffer_body;
#[cfg(all(feature = "axum", feature = "calendar"))]
mod calendars;
#[cfg(feature = "axum")]
mod defaults;
#[cfg(feature = "axum")]
mod dropped;
#[cfg(feature = "axum")]
mod fields_then;
#[cfg(feature = "axum")]
mod in_flight;
#[cfg(feature = "axum")]
mod layer;
#[cfg(feature = "axum")]
mod nothing;
#[cfg(feature = "axum")]
mod read_on;
#[cfg(feature = "axum")]
mod remaining;
#[cfg(feature = "axum")]
mod replacing;
#[cfg(feature = "axum")]
mod rule_values;
#[cfg(feature = "axum")]
mod rules;
#[cfg(feature = "axum")]
mod server;
mod shadow;
#[cfg(all(feature = "axum", feature = "credentials"))]
mod whose_fault;
