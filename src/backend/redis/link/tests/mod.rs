//! The link against real servers, each private to its test.

mod cluster;
#[cfg(feature = "memory")]
mod hostile;
mod outside_input;
mod process;
mod sentinel;
mod single;
mod words;
