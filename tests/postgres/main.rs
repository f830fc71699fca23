//! The store in PostgreSQL, on real servers.

#![cfg(all(feature = "memory", feature = "postgres"))]

mod abandoned;
mod ahead;
mod debtors;
mod decisions;
mod dropped;
#[cfg(feature = "axum")]
mod examples;
mod faults;
mod guide;
mod in_transaction;
mod pooler;
mod replacing;
mod rights;
mod sick_rows;
#[cfg(feature = "postgres-tls")]
mod tls;
#[cfg(feature = "sqlx")]
mod transaction_sqlx;
