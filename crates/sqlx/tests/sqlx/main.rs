//! Decisions inside transactions of sqlx, on real servers.

mod examples;
mod transaction;
