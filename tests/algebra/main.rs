//! The formula, the text form of quotas, and recorded decisions of another implementation.

#[cfg(not(feature = "memory"))]
#[path = "../support/draw.rs"]
mod draw;
#[cfg(feature = "memory")]
mod edges;
mod pairs;
#[cfg(feature = "memory")]
#[path = "../support/mod.rs"]
mod support;
mod text_form;
#[cfg(feature = "memory")]
mod vectors;

#[cfg(feature = "memory")]
use self::support::draw;
