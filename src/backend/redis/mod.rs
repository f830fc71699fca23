//! A store in Redis or Valkey, shared by any number of processes.
//!
//! # Design
//!
//! A decision is one script call, whatever the number of its limits. The script reads the server's
//! time, finds the buckets, applies the formula of [`algebra`](crate::algebra) and stores what
//! changed. It returns only what it found: the client computes the outcome by the same formula, so
//! an answer is as exact as in memory and costs the server nothing. Decisions that a process makes
//! at the same time share a call.
//!
//! A decision goes down through [`engine`], which turns charges into an [`operation`] with the
//! [`key_name`] of each bucket; [`batch`], which collects operations for a call; [`script`], which
//! writes the request; and [`link`], which sends it. The reply comes back to [`script`].

mod batch;
mod builder;
mod cross_slot;
mod engine;
mod hashed;
mod key_name;
mod link;
mod operation;
mod script;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;

pub use self::builder::RedisBuilder;
pub use self::engine::{ColdStart, Redis};
pub use self::key_name::HashTag;
