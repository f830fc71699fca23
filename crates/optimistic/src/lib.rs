//! Limits of tollgate in any store that can compare and swap small values: a key-value server, a table of a
//! database, a replicated log.
//!
//! Implement [`SwapStore`] for the client of your store, and [`Optimistic`] turns it into a store for
//! limits. The [guide] shows one, and `tollgate-conformance` tests it.
//!
//! # Design
//!
//! ```text
//! load the records -> decide on a copy -> swap in what changed, if nothing else changed it
//!   ^                                        |
//!   +------- after a pause, if it did -------+
//! ```
//!
//! ```text
//! engine       the calls, their deadline, the tries
//! apart        calls on several buckets, for a store that swaps one at a time
//! turns        calls of this process that have met
//! swap_store   what the other store has to offer
//! list         goes through its keys for operators
//! ```

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod apart;
mod engine;
mod list;
mod swap_store;
#[cfg(test)]
mod tests;
mod turns;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/optimistic.md")]
pub mod guide {}

pub use self::engine::Optimistic;
pub use self::swap_store::{Swap, SwapScan, SwapStore};
