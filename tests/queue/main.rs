//! Requests that wait: in the queue of a layer, and in that of the limiter.

#![cfg(feature = "memory")]

#[cfg(feature = "axum")]
mod attacks;
#[cfg(feature = "axum")]
mod clocks;
#[cfg(feature = "axum")]
mod drops;
#[cfg(feature = "axum")]
mod edges;
#[cfg(feature = "axum")]
mod layer;
mod leavers;
#[cfg(feature = "axum")]
mod places;
mod shared;
#[cfg(feature = "axum")]
mod staying;
#[cfg(feature = "axum")]
mod storms;
mod wrapped;
