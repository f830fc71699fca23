//! The link against real servers, each private to its test.

mod cluster;
mod sentinel;
mod server;
mod single;
mod words;
