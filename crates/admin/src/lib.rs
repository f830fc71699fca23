//! Routes for operators of tollgate: how a key stands, which keys are blocked or in debt, and what to do
//! about it.
//!
//! [`admin`] makes them. They are nowhere unless you mount them, behind your authentication. The [guide]
//! shows each route and what it answers.

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

pub use self::routes::{AdminRoutes, admin};
