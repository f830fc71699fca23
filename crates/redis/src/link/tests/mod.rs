//! The link against real servers, each private to its test.

mod cluster;
mod fuzz_answers;
mod fuzz_nodes;
mod fuzz_urls;
mod hostile;
mod late;
mod process;
mod sentinel;
mod single;
mod slow;
mod words;
