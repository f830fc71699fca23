//! The memory store: its contract, its bound, its threads, its queue, and what it allocates.

#![cfg(feature = "memory")]

#[cfg(feature = "middleware")]
mod allocations;
mod contract;
mod dump;
mod eviction;
mod hammer;
mod interleavings;
mod line;
mod owned;
mod store;
