//! Limits of tollgate in PostgreSQL, for services of several processes that have a database already.
//!
//! [`Postgres`] is the store. Limits, keys, layers and answers stay as they are in memory. It can also decide
//! [inside a transaction](Postgres::in_transaction) of the application.
//!
//! ```no_run
//! use tollgate::RateLimiter;
//! use tollgate::backend::BackendError;
//! use tollgate_postgres::Postgres;
//!
//! async fn limiter() -> Result<RateLimiter, BackendError> {
//!     Ok(RateLimiter::new(Postgres::connect("host=127.0.0.1 user=app dbname=app").await?))
//! }
//! ```
//!
//! The [guide] has the set-up, rights, costs, and the failures of the database. The feature `tls`
//! adds TLS. Transactions of `sqlx` are in the crate `tollgate-sqlx`.
//!
//! # Design
//!
//! A decision is one statement, whatever the number of its limits: a function in the database reads
//! the database's clock, locks the rows of the buckets in the order of their keys, applies the
//! formula of [`algebra`](tollgate::algebra), and stores what changed. It returns only what it read:
//! the client replays the same formula on that, so an answer is as exact as in memory. Decisions
//! that a process makes at the same time share a statement.
//!
//! A decision passes these files, downwards with the request and upwards with the answer:
//!
//! ```text
//! engine           turns charges into an operation, with the name of each bucket
//! batch            collects the operations of all callers for the next call, in `tollgate-kit`
//! carrier          makes one call of the function for them, on a connection of the pool
//! request          writes its arguments, and reads the answer
//! statement_error  says what an error of the server means
//! ```
//!
//! The file `debtors` lists buckets for operators, and `sweep` removes those that are full again.

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod aside;
mod builder;
mod carrier;
mod connection;
mod debtors;
mod engine;
mod in_transaction;
mod lent;
mod migrate;
mod request;
mod schema;
mod schema_name;
mod statement_error;
mod store_name;
mod sweep;
#[cfg(test)]
mod tests;
mod tls;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/postgres.md")]
pub mod guide {}

pub use self::builder::PostgresBuilder;
pub use self::connection::PostgresConnection;
pub use self::engine::Postgres;
pub use self::in_transaction::InTransaction;

/// What connections of other clients need.
#[doc(hidden)]
pub mod kit {
    pub use super::connection::unreadable;
    pub use super::statement_error::error_of;
}
