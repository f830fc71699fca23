//! The limiter on the memory store: calls, reservations, transactions, shards, corrections.

#![cfg(feature = "memory")]

#[cfg(feature = "axum")]
mod at_once;
mod debtors;
mod hot_limits;
mod nothing;
#[cfg(feature = "middleware")]
mod one_piece;
mod penalties;
mod promises;
mod replacing;
mod reservations;
#[cfg(feature = "axum")]
mod resets;
#[cfg(feature = "serde")]
mod serde;
mod shards;
mod starting_again;
mod transactions;
