//! Limits from a file: what can be written there, and what a mistake in it says.

#![cfg(feature = "yaml")]

mod examples;
mod formats;
mod hostile;
mod layers;
mod lookups;
mod mistakes;
mod reloads;
#[cfg(feature = "credentials")]
mod service;
mod text;
