//! Redis or Valkey: one truth for a fleet.
//!
//! # Design
//!
//! A decision is one script call, whatever the number of its limits. The script reads the server's time, finds the
//! buckets, applies the formula of [`algebra`](crate::algebra) and stores what changed. It answers only what it
//! has found: by the same formula the client works out what came of it, so that an answer is as exact as in memory
//! and costs the server nothing. What is asked at the same time by one process travels in one call.

mod batch;
mod builder;
mod dispatcher;
mod engine;
mod found;
mod line;
mod link;
mod names;
mod number;
mod order;
mod script;
mod spread;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;

pub use self::builder::RedisBuilder;
pub use self::engine::{ColdStart, Redis};
pub use self::names::HashTag;
