//! The link against real servers, each private to its test.

mod cluster;
mod process;
mod sentinel;
mod single;
mod words;
