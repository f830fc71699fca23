//! The store in PostgreSQL, on real servers.

mod abandoned;
mod ahead;
mod debtors;
mod decisions;
mod dropped;
mod examples;
mod faults;
mod guide;
mod in_flight;
mod in_transaction;
mod pooler;
mod replacing;
mod rights;
mod sick_rows;
#[cfg(feature = "tls")]
mod tls;
