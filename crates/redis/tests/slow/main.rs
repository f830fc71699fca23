//! The store in Redis, on servers that fail, hang, and come back.

mod deadlines;
mod failover;
mod faults;
mod fleet;
mod flood;
mod layers;
#[cfg(feature = "tls")]
mod tls;
