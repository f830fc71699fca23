//! What the header fields and the bodies of answers say.

#![cfg(all(feature = "memory", feature = "middleware"))]

#[cfg(feature = "credentials")]
mod dialects;
mod foreign;
mod grammar;
mod refusals;
