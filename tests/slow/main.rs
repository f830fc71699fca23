//! Tests that wait in real time for calls that have to be answered by a deadline. A machine that
//! stalls may fail these tests, and no others.

#![cfg(all(feature = "memory", feature = "axum"))]

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
