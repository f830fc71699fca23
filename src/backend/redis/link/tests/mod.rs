//! The link against real servers, each private to its test.

mod cluster;
#[cfg(feature = "memory")]
mod fuzz_answers;
#[cfg(feature = "memory")]
mod fuzz_nodes;
#[cfg(feature = "memory")]
mod fuzz_urls;
#[cfg(feature = "memory")]
mod hostile;
mod late;
mod process;
mod sentinel;
mod single;
mod slow;
mod words;
