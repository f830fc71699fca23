//! The crate as its users meet it: examples, names, messages, and the lines that they write first.

#[cfg(all(feature = "memory", feature = "axum", feature = "credentials"))]
mod examples;
mod features;
#[cfg(all(feature = "memory", feature = "axum"))]
mod futures;
#[cfg(all(feature = "memory", feature = "axum"))]
mod glob;
#[cfg(all(feature = "memory", feature = "axum"))]
mod messages;
#[cfg(all(feature = "memory", feature = "axum"))]
mod misuse;
#[cfg(all(feature = "memory", feature = "axum"))]
mod setup_mistakes;
#[cfg(all(feature = "memory", feature = "axum"))]
mod strict_window;
