//! Limits of tollgate in a file of this machine, for one process: a restart or a crash loses nothing.
//!
//! ```no_run
//! use tollgate::RateLimiter;
//! use tollgate::backend::BackendError;
//! use tollgate_embedded::Embedded;
//!
//! fn limiter() -> Result<RateLimiter, BackendError> {
//!     Ok(RateLimiter::new(Embedded::open("limits.db")?))
//! }
//! ```
//!
//! The [guide] has the use cases, the costs, and the behaviour when the disk fails.
//!
//! # Design
//!
//! Two threads work for a store. One decides, and the other commits:
//!
//! ```text
//! callers --jobs--> decider --changes--> committer --> file
//!    ^                 |  ^                  |
//!    +----answers------+  +------report------+
//! ```
//!
//! The decider takes all waiting jobs, and decides them one after the other on the pending changes
//! and the file. A change is pending until a commit has written it. One commit at a time is under
//! way, and the next one carries all decisions made meanwhile. So the disk bounds how long a decision
//! takes, and not how many there are.
//!
//! A [durable](Durability::Durable) decision is answered by the report of its commit. If the commit
//! fails, all that is pending is discarded, since later decisions count on earlier ones. A
//! [fast](Durability::Fast) decision is answered at once, and stays pending until a commit
//! succeeds; while commits fail, no call that changes a bucket is answered.
//!
//! ```text
//! store       the calls, their deadline
//! builder     the settings
//! decider     decides jobs, and answers them
//! committer   writes what they changed
//! inbox       messages of the callers and the committer to the decider
//! sweep       removes full buckets from the file, and keeps it within its bound
//! file        the file: opening, reading, writing, and their errors
//! list        reads the file for operators, and not for decisions
//! ```

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod committer;
mod creation;
mod decider;
mod file;
mod inbox;
mod list;
mod store;
mod sweep;
#[cfg(test)]
mod tests;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/embedded.md")]
pub mod guide {}

pub use self::builder::EmbeddedBuilder;
pub use self::decider::Durability;
pub use self::store::Embedded;

/// What errors call the store.
const NAME: &str = "embedded";
