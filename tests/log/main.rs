//! What an operator reads in the log.
//!
//! These tests have a process of their own: one subscriber serves all of them. If a test without a
//! subscriber met an event first, the event could stay switched off, and a line that is logged once
//! in a process would be lost.

#![cfg(all(feature = "memory", feature = "axum", feature = "tracing"))]

mod causes;
mod lines;
mod mistakes;
mod observers;
mod order;
mod refusing;
#[cfg(feature = "credentials")]
mod secrets;
