//! Routes for operators of tollgate: show the state of a key, list keys that are blocked or in debt, and
//! reset, penalize or block them.
//!
//! [`admin`] makes them. They exist only if you mount them, behind your authentication. The [guide]
//! shows each route and its answer.

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod changes;
mod error;
mod json;
mod looks;
mod path;
mod query;
mod reply;
mod routes;
mod state;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/looking-in.md")]
pub mod guide {}

pub use self::routes::{UnguardedRoutes, admin};
