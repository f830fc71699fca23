//! Internals that the stores of tollgate share. They are not a public interface, are exempt from
//! semantic versioning, and each store names their version exactly. For a store of your own, use
//! [`tollgate::backend`], or `tollgate-optimistic` if it can compare and swap.
//!
//! # Design
//!
//! A store that other processes share decides by a call of a server. A decision passes these files,
//! downwards with the request and upwards with the answer. The store itself is a
//! [`Carrier`](batch::Carrier), which takes a batch to its server.
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
//! A store of bytes in this process, or behind a client of its own, has `operation` and `stored`. All
//! need the others:
//!
//! ```text
//! crowd      whether so many callers wait that lateness says nothing about the store
//! late       whether a call is late because of the store, or because of this process
//! debtors    lists for operators, which are no decisions; `pages` for those of servers
//! hashed     maps by keys that are hashes already
//! tls        the settings of TLS
//! ```

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![allow(
    missing_docs,
    rustdoc::private_intra_doc_links,
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    clippy::len_without_is_empty,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "its users are the stores of this workspace"
)]

pub mod batch;
pub mod crowd;
pub mod debtors;
pub mod hashed;
pub mod key_name;
pub mod late;
pub mod operation;
pub mod overdue;
pub mod pages;
pub mod replay;
pub mod request;
pub mod store_time;
pub mod stored;
#[cfg(feature = "tls")]
pub mod tls;
