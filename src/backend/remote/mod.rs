//! What the stores that other processes share have in common: a decision is a call of a server.
//!
//! # Design
//!
//! A decision passes these files, downwards with the request and upwards with the answer. The store
//! itself is a [`Carrier`](batch::Carrier), which takes a batch to its server.
//!
//! ```text
//! operation  what a caller asks for, as an owned value
//! key_name   the name of each bucket in the store
//! batch      collects the operations of all callers for the next call
//! request    writes them as one list of numbers
//! store_time knows how far the clock of the store is ahead
//! replay     computes each answer from the buckets as they were before the call
//! ```
//!
//! The file `pages` has what lists of debtors have in common, which are no decisions.

pub(super) mod batch;
pub(super) mod key_name;
pub(super) mod operation;
pub(super) mod pages;
pub(super) mod replay;
pub(super) mod request;
pub(super) mod store_time;
#[cfg(any(feature = "redis-tls", feature = "postgres-tls"))]
pub(super) mod tls;
