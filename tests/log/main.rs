//! What an operator reads in the log.
//!
//! Alone in its process: one subscriber serves all tests, and each of them begins with it. Beside tests
//! without one, an event that they meet first could stay switched off, and lines that are logged once
//! in a process would be gone.

#![cfg(all(feature = "memory", feature = "axum", feature = "tracing"))]

mod causes;
mod lines;
#[cfg(feature = "credentials")]
mod secrets;
#[path = "../support/mod.rs"]
mod support;
