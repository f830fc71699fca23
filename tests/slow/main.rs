//! Tests that wait in real time for calls that have to be answered by a deadline, and clients that
//! wait until they are admitted. A machine that stalls may fail these tests, and no others.

#![cfg(all(feature = "memory", feature = "axum"))]

mod clients;
#[cfg(all(feature = "embedded", feature = "leasing", feature = "postgres", feature = "redis"))]
mod floods;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
