//! Limits of tollgate in Redis or Valkey, for services of several processes.
//!
//! [`Redis`] is the store: a single server, a [cluster](Redis::cluster), or the master that
//! [sentinels](Redis::sentinel) name. Limits, keys, layers and answers stay as they are in memory.
//!
//! ```no_run
//! use tollgate::RateLimiter;
//! use tollgate::backend::BackendError;
//! use tollgate_redis::Redis;
//!
//! async fn limiter() -> Result<RateLimiter, BackendError> {
//!     Ok(RateLimiter::new(Redis::connect("redis://127.0.0.1:6379").await?))
//! }
//! ```
//!
//! The [guide] has the costs of a decision, the failures and their answers, the rights of the user, and
//! the stored values. The feature `tls` adds TLS.
//!
//! # Design
//!
//! A decision is one call of a Lua script, whatever the number of its limits. The script reads the
//! server's time, reads the buckets, applies the formula of [`algebra`](tollgate::algebra), and stores
//! what changed. It returns only what it read: the client replays the same formula on that, so an
//! answer is as exact as in memory and costs the server nothing. Decisions that a process makes at
//! the same time share a call.
//!
//! A decision passes these files, downwards with the request and upwards with the reply:
//!
//! ```text
//! engine     turns charges into an operation, with the key name of each bucket
//! batch      collects the operations of all callers for the next call, in `tollgate-kit`
//! carrier    makes one call of the script for them
//! script     writes the request, and reads the reply
//! link       sends it to the right server: connections, redirections, retries
//! ```
//!
//! The file `debtors` lists buckets for operators, by scans of the servers.

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod carrier;
mod cross_slot;
mod debtors;
mod engine;
mod link;
mod script;
#[cfg(test)]
mod tests;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/redis.md")]
pub mod guide {}

pub use self::builder::RedisBuilder;
pub use self::engine::{ColdStart, Redis};
pub use tollgate_kit::key_name::HashTag;
