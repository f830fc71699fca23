//! The link against real servers, each private to its test.

mod cluster;
#[cfg(feature = "memory")]
mod hostile;
mod process;
mod sentinel;
mod single;
mod words;
